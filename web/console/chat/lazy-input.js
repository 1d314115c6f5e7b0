/** A lazy chunk: views and questions, loaded when the first one is drawn. */

import "../views/view.js";
import "./pending-call.js";
