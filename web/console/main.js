/** The console: what the browser loads first. */

import "./console.js";
