"""The dialect `ag-ui`: events of AG-UI 1.0, their content, and the messages and outcome of a run."""
