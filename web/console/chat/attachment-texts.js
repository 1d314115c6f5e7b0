/** The words of the files of a message (`ui/attachment-tray.js`). */

export const ATTACHMENT_TEXTS = {
  attachments: "Files to send",
  fileKinds: { image: "pictures", pdf: "PDF", text: "text files" },
  remove: (name) => `Remove ${name}`,
  uploading: (name, percent) => `Uploading ${name}: ${percent} %`,
  uploaded: (name) => `${name} is ready to send.`,
  uploadFailed: (name) => `${name} was not uploaded. Remove it, or add it again.`,
  tooManyUploads: () => "Too many uploads. Wait a minute and add the file again.",
  tooMany: (count) => `A message can have ${count} files.`,
  tooLarge: (name, size) => `${name} is larger than ${size}.`,
  wrongType: (name, kinds) => `${name} cannot be sent: only ${kinds}.`,
  emptyFile: (name) => `${name} is empty.`,
};
