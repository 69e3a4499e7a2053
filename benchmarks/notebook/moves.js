// What happens in the page between a key and the picture that it asked for.
// A picture is painted when its frame has been drawn: the first task after the next animation frame.
(() => {
  const painted = () => new Promise(done => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done(performance.now());
    channel.port2.postMessage(0);
  }));
  const drawn = place => {
    const picture = place.querySelector("svg[role=img], img");
    return picture ? picture.src || picture.innerHTML : "";
  };
  const watch = (place, act, attributes) => {
    const observer = new MutationObserver(act);
    observer.observe(place, {subtree: true, childList: true, attributes});
    return observer;
  };
  // Milliseconds from the next key's own time to the first painted picture that differs from now's.
  const move = place => new Promise(done => {
    const before = drawn(place);
    let pressed = null;
    const key = event => { pressed = event.timeStamp; };
    window.addEventListener("keydown", key, {capture: true, once: true});
    const observer = watch(place, async () => {
      if (pressed === null || ["", before].includes(drawn(place))) return;
      await Promise.all([...place.querySelectorAll("img")].map(image => image.decode()));
      const now = await painted();
      observer.disconnect();
      done(now - pressed);
    }, true);
  });
  // While a key is held: every key's own time; the position after each, read before the next one;
  // every position painted; and when the last picture was painted.
  const hold = (place, position) => {
    const log = {keys: [], asked: [], painted: [], changed: 0};
    let on = true;
    const pressed = key => {
      if (log.keys.length) log.asked.push(position());
      log.keys.push(key.timeStamp);
    };
    window.addEventListener("keydown", pressed, true);
    const observer = watch(place, async changes => {  // the number beside a slider is no picture
      if (changes.every(change => change.target.closest(".widget-readout"))) return;
      log.changed = await painted();
    }, false);
    const look = async () => {
      while (on) { await painted(); log.painted.push(position()); }
    };
    look();
    return {
      quiet: () => performance.now() - Math.max(log.changed, ...log.keys) > 2000,
      end: () => {
        on = false;
        observer.disconnect();
        window.removeEventListener("keydown", pressed, true);
        log.asked.push(position());
        return log;
      },
    };
  };
  window.moves = {drawn, move, hold};
})();
