/** Texts from elsewhere on a terminal. */

/** A name from elsewhere, safe to show: what a terminal would obey is written as an escape. */
export function shownName(name: string): string {
  // oxlint-disable-next-line no-control-regex -- control characters are what must not reach a terminal
  return name.replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, (sign) => {
    return `\\x${sign.charCodeAt(0).toString(16).padStart(2, '0')}`
  })
}
