/** A lazy chunk: all panels, which share most of their code. */

import "../app/focus-recovery.js";
import "../app/usage-totals.js";
import "./agents-panel.js";
import "./documents-panel.js";
import "./events-panel.js";
import "./guide-panel.js";
import "./state-panel.js";
import "./timeline-panel.js";
import "./usage-panel.js";
