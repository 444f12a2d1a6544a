// Looks at a page as it lies on the screen: what is too wide, what lies upon another text, what is outside of its picture, what
// can hardly be read. Gives JSON.
(() => {
  const faults = [];
  let pictures = 0, texts = 0, shapes = 0;
  const tell = (text) => { if (faults.length < 20) faults.push(text); };
  if (document.documentElement.scrollWidth > window.innerWidth)
    tell(`the page is ${document.documentElement.scrollWidth} wide on a screen of ${window.innerWidth}`);
  const scrolls = (element) => element.closest('.scroll, pre') !== null;
  for (const element of document.querySelectorAll('body *')) {
    const box = element.getBoundingClientRect();
    if (box.width > 0 && !element.closest('svg') && !scrolls(element) && box.right > window.innerWidth + 0.5)
      tell(`<${element.tagName}> "${element.textContent.slice(0, 40)}" ends at ${box.right}`);
  }
  for (const svg of document.querySelectorAll('svg:not(.key)')) {
    const frame = svg.getBoundingClientRect();
    if (frame.width === 0) continue;
    pictures += 1;
    const name = svg.querySelector('title')?.textContent ?? '';
    if (name === '' || svg.getAttribute('aria-label') !== name) tell(`a picture has no title: ${name}`);
    const outside = (box) =>
      box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
    const labels = [...svg.querySelectorAll('text')].map((e) => [e.textContent, e.getBoundingClientRect()]);
    texts += labels.length;
    labels.forEach(([text, box], at) => {
      if (outside(box)) tell(`${name}: "${text}" is outside of its picture`);
      for (const [other, b] of labels.slice(at + 1)) {
        const across = Math.min(box.right, b.right) - Math.max(box.left, b.left);
        const down = Math.min(box.bottom, b.bottom) - Math.max(box.top, b.top);
        if (across > 1 && down > 2.5) tell(`${name}: "${text}" and "${other}" lie upon each other`);
      }
    });
    for (const shape of svg.querySelectorAll('path, circle, rect, line')) {
      shapes += 1;
      if (outside(shape.getBoundingClientRect())) tell(`${name}: a ${shape.tagName} is outside of its picture`);
    }
    const letters = Math.min(...[...svg.querySelectorAll('text')].map((e) => parseFloat(getComputedStyle(e).fontSize)));
    const size = letters * frame.width / svg.viewBox.baseVal.width;
    if (size < 9.5) tell(`${name}: letters of ${size} px`);
  }
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\d.]+/g).map(Number).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (!colour.endsWith(', 0)') && colour !== 'transparent') return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  for (const element of document.querySelectorAll('p, li, td, th, h1, h2, h3, h4, figcaption, summary, .tag, .where, svg text')) {
    const style = getComputedStyle(element);
    const [ink, ground] = [light(element.tagName === 'text' ? style.fill : style.color), light(paper(element))];
    const contrast = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
    if (contrast < 4.5) tell(`"${element.textContent.slice(0, 30)}" has a contrast of ${contrast}`);
  }
  return JSON.stringify({ faults, pictures, texts, shapes });
})()
