/** What a person answers with, views and questions, loaded when the first one is there. */

import "../views/view.js";
import "./pending-call.js";
