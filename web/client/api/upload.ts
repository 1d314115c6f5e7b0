/**
 * Uploads of files with progress. `fetch` does not tell how much of a body was sent, `XMLHttpRequest` does; where it is
 * missing, as on a server, the upload is an ordinary request without progress.
 */

/** A file that the server has stored. A message names it within a day, or the server drops it. */
export interface UploadedFile {
  blob: string;
  media_type: string;
  size_bytes: number;
  /** Its address relative to the server's root. */
  url: string;
}

export interface UploadOptions {
  /** Called with the share of the file that was sent, 0 to 1. */
  onProgress?: (share: number) => void;
  signal?: AbortSignal;
}

/** Return a `fetch` that reports the progress of its body; the plain one where that is not possible. */
export function fetchWithProgress(onProgress: (share: number) => void, plain: typeof fetch = fetch): typeof fetch {
  if (typeof XMLHttpRequest === "undefined") return plain;
  return (url, init = {}) => sendRequest(String(url), init, onProgress);
}

function sendRequest(url: string, init: RequestInit, onProgress: (share: number) => void): Promise<Response> {
  return new Promise((resolve, reject) => {
    init.signal?.throwIfAborted(); // a token may have taken its time
    const request = new XMLHttpRequest();
    request.open(init.method ?? "GET", url);
    request.withCredentials = init.credentials === "include";
    new Headers(init.headers).forEach((text, name) => request.setRequestHeader(name, text));
    request.upload.onprogress = ({ loaded, total }) => onProgress(total > 0 ? loaded / total : 0);
    request.onload = () => resolve(readResponse(request));
    request.onerror = () => reject(new TypeError("the upload failed"));
    request.onabort = () => reject(init.signal?.reason);
    init.signal?.addEventListener("abort", () => request.abort());
    request.send(init.body as XMLHttpRequestBodyInit);
  });
}

function readResponse(request: XMLHttpRequest): Response {
  const headers = new Headers();
  for (const line of request.getAllResponseHeaders().trim().split("\r\n")) {
    const at = line.indexOf(":");
    if (at > 0) headers.append(line.slice(0, at), line.slice(at + 1).trim());
  }
  return new Response(request.responseText, { status: request.status, headers });
}
