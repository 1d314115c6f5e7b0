/** The panels that somebody may look into, loaded together: they share most of what they need. */

import "../app/focus-recovery.js";
import "../app/usage-totals.js";
import "./agents-panel.js";
import "./documents-panel.js";
import "./events-panel.js";
import "./guide-panel.js";
import "./state-panel.js";
import "./timeline-panel.js";
import "./usage-panel.js";
