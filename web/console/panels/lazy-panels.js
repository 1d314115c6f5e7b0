/** The panels that somebody may look into, loaded together: they share most of what they need. */

import "./agents-panel.js";
import "./documents-panel.js";
import "./events-panel.js";
import "../app/focus-recovery.js";
import "./guide-panel.js";
import "./state-panel.js";
import "../app/usage-totals.js";
import "./usage-panel.js";
import "./timeline-panel.js";
