/** Finds the first fault of a JSON text, or its first repeated key. It accepts what `JSON.parse` accepts, whose messages lack positions. */
// JSON forbids control characters inside a string.
// oxlint-disable-next-line no-control-regex
const STRING = /"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4})[^"\\\u0000-\u001f]*)*(")?/y
const SCALAR = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.+-])/y
const BLANKS = /[ \t\r\n]*/y

export interface JsonFault {
  /** Index in the text. */
  readonly offset: number
  /** Never quotes the text, which may contain a secret. */
  readonly message: string
}

/** An object with its keys, or a list. */
type Container = Set<string> | 'list'

export function findJsonFault(text: string): JsonFault | undefined {
  const open: Container[] = []
  let offset = 0
  let repeated: JsonFault | undefined
  const take = (pattern: RegExp) => {
    pattern.lastIndex = offset
    const found = pattern.exec(text)
    offset += found?.[0].length ?? 0
    return found
  }
  const skip = (character: string) => {
    take(BLANKS)
    if (text[offset] !== character) return false
    offset++
    return true
  }
  const fault = (message: string): JsonFault => ({ offset, message })
  const string = () => {
    const start = offset
    if (take(STRING)?.[1] === undefined) return fault('the string is not closed, or has an invalid character or escape')
    return text.slice(start, offset)
  }

  for (;;) {
    const inner = open.at(-1)
    if (inner instanceof Set) {
      take(BLANKS)
      const at = offset
      if (text[offset] !== '"') return fault('expected a key in double quotes')
      const key = string()
      if (typeof key !== 'string') return key
      const name = String(JSON.parse(key))
      if (inner.has(name)) repeated ??= { offset: at, message: 'the key is repeated' }
      inner.add(name)
      if (!skip(':')) return fault('expected `:` after a key')
    }
    take(BLANKS)
    const start = text[offset]
    if (start === '{' || start === '[') {
      offset++
      const isEmpty = skip(start === '{' ? '}' : ']')
      if (!isEmpty) {
        open.push(start === '{' ? new Set() : 'list')
        continue
      }
    } else if (start === '"') {
      const value = string()
      if (typeof value !== 'string') return value
    } else if (!take(SCALAR)) return fault('expected a value; strings are in double quotes')
    for (;;) {
      const around = open.at(-1)
      if (around === undefined) {
        take(BLANKS)
        return offset < text.length ? fault('expected nothing after the value') : repeated
      }
      if (skip(',')) break
      const close = around === 'list' ? ']' : '}'
      if (!skip(close)) return fault(`expected \`,\` or \`${close}\``)
      open.pop()
    }
  }
}
