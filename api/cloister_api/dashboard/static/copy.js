/* Copies the text beside a button. Without this script the buttons are hidden, and a click on the
   text selects all of it. */
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const mark = button.querySelector("[role=status]");
  try {
    await navigator.clipboard.writeText(button.parentElement.querySelector("code, a").textContent.trim());
    mark.textContent = "Copied";
  } catch {
    mark.textContent = "Select the text to copy it";
  }
  setTimeout(() => (mark.textContent = ""), 2000);
});
