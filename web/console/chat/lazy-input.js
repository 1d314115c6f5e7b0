/** What a person answers with, views and questions, loaded when the first one is there. */

import "./pending-call.js";
import "../views/view.js";
