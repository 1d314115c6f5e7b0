import { createRoot } from "react-dom/client";
import { Desk } from "./copilotkit.jsx";

const thread = new URLSearchParams(location.search).get("id");
createRoot(document.querySelector("#root")).render(<Desk thread={thread} />);
