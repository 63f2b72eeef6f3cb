// Browsers start no web worker for a page opened from the disk. There, the search of the
// site runs in a hidden frame instead, which exchanges the messages of a worker.
if (location.protocol === "file:") {
  const script = (code, src = "") => `<script ${src && `src="${src}"`}>${code}<\/script>`;
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.ready = new Promise((resolve) => frame.addEventListener("load", resolve));
      this.inside = frame.contentWindow;
      this.inside.answer = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.document.open();
      this.inside.document.write(script("postMessage = answer"), script("", url));
      this.inside.document.close();
    }
    async postMessage(data) {
      await this.ready;
      this.inside.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
  window.Worker = window.IFrameWorker;
}
