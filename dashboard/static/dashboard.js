"use strict";

// The theme is kept in a cookie, so that the server draws the page right at once.
function toggleTheme() {
  const theme = document.body.classList.contains("body--dark") ? "light" : "dark";
  document.cookie = `tweetwire_theme=${theme}; path=/; max-age=31536000; samesite=strict`;
  window.location.reload();
}

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));
}

document.addEventListener("click", (event) => {
  if (event.target instanceof Element && event.target.closest("#theme")) toggleTheme();
});

// 1 to 6: the pages; /: the filter of this page; t: light or dark.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  const entry = document.querySelector(`nav [data-key="${CSS.escape(event.key)}"]`);
  const filter = document.querySelector('[data-filter] input, input[data-filter]');
  if (entry) entry.click();
  else if (event.key === "/" && filter) { event.preventDefault(); filter.focus(); }
  else if (event.key === "t") toggleTheme();
});
