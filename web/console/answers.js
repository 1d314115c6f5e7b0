/** What a person answers with, views and questions, loaded when the first one is there. */

import "./ask.js";
import "./view.js";
