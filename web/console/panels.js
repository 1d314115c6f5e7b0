/** The panels that somebody may look into, loaded together: they share most of what they need. */

import "./agents.js";
import "./documents.js";
import "./events.js";
import "./focus.js";
import "./guide.js";
import "./state.js";
import "./totals.js";
import "./usage.js";
import "./waterfall.js";
