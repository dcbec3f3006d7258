/** A text in quotes as Go's `%q` writes it, which clients know from some error texts. */
const NAMED: Readonly<Record<string, string>> = {
  '"': '\\"',
  '\\': '\\\\',
  '\n': '\\n',
  '\t': '\\t',
  '\r': '\\r',
  '\u0007': '\\a',
  '\b': '\\b',
  '\f': '\\f',
  '\v': '\\v',
}

export function goQuote(text: string): string {
  const quoted = text.replace(/["\\\p{C}]|[^\P{Z} ]/gu, (each) => {
    const named = NAMED[each]
    if (named !== undefined) return named
    const code = each.codePointAt(0) ?? 0
    if (code < 0x80) return `\\x${code.toString(16).padStart(2, '0')}`
    return code > 0xffff ? `\\U${code.toString(16).padStart(8, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`
  })
  return `"${quoted}"`
}

/** Several errors as one text. */
export function goErrors(items: readonly string[]): string {
  const head = items.length === 1 ? '1 error occurred:' : `${items.length} errors occurred:`
  return `${head}\n${items.map((each) => `\t* ${each}\n`).join('')}\n`
}
