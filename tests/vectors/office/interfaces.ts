// The shapes of the 22 types of document 004 and of what they share: names and types, nothing else.

interface ServerEvent {
  id: number;
  ts: number;
  sessionId: string | null;
  type: string;
}

interface SessionStartEvent extends ServerEvent {
  type: "session_start";
  pid: number;
  model: string;
  demoMode: boolean;
}

interface SessionEndEvent extends ServerEvent {
  type: "session_end";
  exitCode: number | null;
  reason: "user_ended" | "inactivity_timeout" | "process_crash" | "server_shutdown";
}

interface AuthStateEvent extends ServerEvent {
  type: "auth_state";
  authMethod: "oauth" | "setup_token" | "none";
  needsSetup: boolean;
  expiresInMinutes: number | null;
}

interface ClaudeSystemEvent extends ServerEvent {
  type: "claude_system";
  claudeSessionId: string;
  availableTools: string[];
}

interface ClaudeTextEvent extends ServerEvent {
  type: "claude_text";
  messageId: string;
  content: Array<{
    type: "text";
    text: string;
  } | {
    type: "tool_use";
    id: string;
    name: string;
    input: Record<string, any>;
  } | {
    type: "thinking";
    thinking: string;
  }>;
}

interface ClaudeToolResultEvent extends ServerEvent {
  type: "claude_tool_result";
  toolUseId: string;
  toolName: string;
  content: string;
  isError: boolean;
}

interface ClaudeResultEvent extends ServerEvent {
  type: "claude_result";
  subtype: "success" | "error" | "timeout";
  numTurns: number;
  costUsd: number | null;
  usage: {
    inputTokens: number;
    outputTokens: number;
    cacheReadTokens: number;
    cacheCreationTokens: number;
  };
  resultText: string;
}

interface ClaudeCompactEvent extends ServerEvent {
  type: "claude_compact";
}

interface UserMessageEvent extends ServerEvent {
  type: "user_message";
  text: string;
  speakerName: string;
  targetAgent: string | null;
}

interface UserSummonEvent extends ServerEvent {
  type: "user_summon";
}

interface UserWakeEvent extends ServerEvent {
  type: "user_wake";
  agentPayloads: Array<{
    name: string;
    color: string;
    colorName: string;
    gridPosition: number;
    hasSoul: boolean;
    hasTranscript: boolean;
  }>;
}

interface UserSessionStartEvent extends ServerEvent {
  type: "user_session_start";
  demoMode: boolean;
  hasPreviousTranscript: boolean;
  hasArtifactCatalog: boolean;
}

interface UserSessionEndEvent extends ServerEvent {
  type: "user_session_end";
}

interface AgentRegisteredEvent extends ServerEvent {
  type: "agent_registered";
  agent: {
    name: string;
    color: string;
    colorName: string;
    gender: "man" | "woman";
    gridPosition: number;
    faceVariant: {
      eyes: string;
      mouth: string;
    };
    individuationArtifact: string;
    createdAt: string;
  };
}

interface AgentStatusEvent extends ServerEvent {
  type: "agent_status";
  agents: Array<{
    name: string;
    status: "alive" | "idle" | "shutdown";
    gridPosition: number;
  }>;
}

interface AgentWorkOfferedEvent extends ServerEvent {
  type: "agent_work_offered";
  agentName: string;
  jobNames: string[];
}

interface AgentMessageEvent extends ServerEvent {
  type: "agent_message";
  agentName: string;
  content: Array<{
    type: "text";
    text: string;
  }>;
}

interface ArtifactWrittenEvent extends ServerEvent {
  type: "artifact_written";
  filename: string;
  path: string;
  isNew: boolean;
  sizeBytes: number;
  meta: {
    description?: string;
    category?: string;
    chapter?: string;
  } | null;
}

interface ScreenCommandEvent extends ServerEvent {
  type: "screen_command";
  command: string;
  expression?: string;
}

interface JobHelpEvent extends ServerEvent {
  type: "job_help";
  suggestions: Record<string, any>;
}

interface HeartbeatEvent extends ServerEvent {
  type: "heartbeat";
}

interface ServerErrorEvent extends ServerEvent {
  type: "server_error";
  message: string;
  code: "auth_failed" | "session_conflict" | "setup_required"
       | "stdin_write_failed" | "process_exited" | "turn_timeout"
       | "inactivity_timeout" | "unknown";
}
