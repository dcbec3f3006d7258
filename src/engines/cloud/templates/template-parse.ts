/**
 * Reads templates in the language of Go's text/template, as far as names need it: text, fields, functions with pipes and
 * parentheses, variables, `if`, `else if`, `else`, `with`, comments, and `-` that trims white space.
 */

/** What is wrong with a template. */
export class TemplateError extends Error {
  override readonly name = 'TemplateError'
}

export type Operand =
  | { readonly kind: 'literal'; readonly value: string | number | boolean }
  | { readonly kind: 'field'; readonly names: readonly string[] }
  | { readonly kind: 'variable'; readonly name: string; readonly names: readonly string[] }
  | { readonly kind: 'pipe'; readonly pipe: Pipe }
  | { readonly kind: 'function'; readonly name: string }

/** A function or a value, with what it is given. */
export type Command = readonly Operand[]
export interface Pipe {
  /** The variable that the result is given to. */
  readonly declares?: string
  readonly assigns?: string
  readonly commands: readonly Command[]
}
export type Node =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'pipe'; readonly pipe: Pipe }
  | {
      readonly kind: 'if' | 'with'
      readonly pipe: Pipe
      readonly body: readonly Node[]
      readonly otherwise: readonly Node[]
    }

const TEMPLATE_LENGTH_MAX = 4096
const DEPTH_MAX = 50
const TOKEN =
  /\s*(?:("(?:[^"\\\n]|\\.)*")|(`[^`]*`)|([+-]?(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?))(?![\w.])|(\$\w*)|(\.\w+)|(\.)|([A-Za-z_]\w*)|(:=|[|()=]))/y

interface Action {
  readonly kind: 'text' | 'action'
  readonly text: string
}

/** Throws a TemplateError. `isFunction` says which names are functions. */
export function parseTemplate(source: string, isFunction: (name: string) => boolean): readonly Node[] {
  if (source === '') throw new TemplateError('missing template')
  if (source.length > TEMPLATE_LENGTH_MAX) {
    throw new TemplateError(`unable to parse template: it has more than ${TEMPLATE_LENGTH_MAX} characters`)
  }
  try {
    return new Parser(pieces(source), isFunction).whole()
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error
    throw new TemplateError(`unable to parse template: ${error.message}`)
  }
}

/** Text and actions, white space trimmed where an action asks for it. */
function pieces(source: string): Action[] {
  const found: Action[] = []
  let rest = source
  let isTrimming = false
  for (;;) {
    const begin = rest.indexOf('{{')
    let text = begin < 0 ? rest : rest.slice(0, begin)
    if (isTrimming) text = text.trimStart()
    if (begin < 0) {
      found.push({ kind: 'text', text })
      return found
    }
    rest = rest.slice(begin + 2)
    if (/^-\s/.test(rest)) {
      text = text.trimEnd()
      rest = rest.slice(1)
    }
    found.push({ kind: 'text', text })
    const end = endOfAction(rest)
    if (end < 0) throw new TemplateError('unclosed action')
    let action = rest.slice(0, end)
    isTrimming = /\s-$/.test(action)
    if (isTrimming) action = action.slice(0, -1)
    rest = rest.slice(end + 2)
    if (!/^\s*\/\*[^]*\*\/\s*$/.test(action)) found.push({ kind: 'action', text: action })
  }
}

/** Where an action ends: not within a string of it. */
function endOfAction(text: string): number {
  const part = /"(?:[^"\\\n]|\\.)*"|`[^`]*`|\/\*[^]*?\*\/|\}\}|[^]/y
  for (;;) {
    const at = part.lastIndex
    const match = part.exec(text)
    if (!match) return -1
    if (match[0] === '}}') return at
  }
}

class Parser {
  readonly #pieces: readonly Action[]
  readonly #isFunction: (name: string) => boolean
  #at = 0
  #depth = 0

  constructor(given: readonly Action[], isFunction: (name: string) => boolean) {
    this.#pieces = given
    this.#isFunction = isFunction
  }

  whole(): Node[] {
    const { ended, nodes } = this.#list()
    if (ended) throw new TemplateError(`unexpected {{${ended}}}`)
    return nodes
  }

  /** Up to `end` or `else`, which is told. */
  #list(): { nodes: Node[]; ended: string | undefined; rest: string } {
    if (++this.#depth > DEPTH_MAX) throw new TemplateError('too many nested blocks')
    const nodes: Node[] = []
    try {
      while (this.#at < this.#pieces.length) {
        const piece = this.#pieces[this.#at++]
        if (!piece) break
        if (piece.kind === 'text') {
          if (piece.text !== '') nodes.push(piece as Node & { kind: 'text' })
          continue
        }
        const [, word = '', rest = ''] = /^\s*(\w*)([^]*)$/.exec(piece.text) ?? []
        if (word === 'end' && rest.trim() === '') return { nodes, ended: 'end', rest: '' }
        if (word === 'else') return { nodes, ended: 'else', rest }
        if (word === 'if' || word === 'with') nodes.push(this.#branch(word, rest))
        else nodes.push({ kind: 'pipe', pipe: this.#pipe(piece.text) })
      }
      return { nodes, ended: undefined, rest: '' }
    } finally {
      this.#depth--
    }
  }

  #branch(kind: 'if' | 'with', source: string): Node {
    const pipe = this.#pipe(source)
    const then = this.#list()
    if (then.ended === undefined) throw new TemplateError('unexpected EOF')
    if (then.ended === 'end') return { kind, pipe, body: then.nodes, otherwise: [] }
    const [, word = '', rest = ''] = /^\s*(\w*)([^]*)$/.exec(then.rest) ?? []
    if (word === 'if' || word === 'with') return { kind, pipe, body: then.nodes, otherwise: [this.#branch(word, rest)] }
    if (then.rest.trim() !== '') throw new TemplateError(`unexpected ${then.rest.trim()} in else`)
    const otherwise = this.#list()
    if (otherwise.ended !== 'end')
      throw new TemplateError(otherwise.ended ? 'expected end; found {{else}}' : 'unexpected EOF')
    return { kind, pipe, body: then.nodes, otherwise: otherwise.nodes }
  }

  #pipe(source: string): Pipe {
    const tokens = tokensOf(source)
    const [first = '', second] = tokens
    const isSetting = first.startsWith('$') && (second === ':=' || second === '=')
    const reader = new Tokens(isSetting ? tokens.slice(2) : tokens)
    const commands = this.#commands(reader)
    if (!reader.isDone) throw new TemplateError(`unexpected ${shownToken(reader.next())} in command`)
    if (!isSetting) return { commands }
    return second === ':=' ? { declares: first, commands } : { assigns: first, commands }
  }

  #commands(reader: Tokens): Command[] {
    const commands: Command[] = []
    let operands: Operand[] = []
    const close = () => {
      if (operands.length === 0) throw new TemplateError('missing value for command')
      commands.push(operands)
      operands = []
    }
    while (!reader.isDone && reader.peek() !== ')') {
      if (reader.peek() === '|') {
        reader.next()
        close()
      } else operands.push(this.#operand(reader))
    }
    close()
    for (const [at, command] of commands.entries()) {
      if (at > 0 && command[0]?.kind !== 'function') throw new TemplateError('non executable command in pipeline')
    }
    return commands
  }

  #operand(reader: Tokens): Operand {
    const token = reader.next()
    if (token === '(') {
      if (++this.#depth > DEPTH_MAX) throw new TemplateError('too many nested parentheses')
      const commands = this.#commands(reader)
      this.#depth--
      if (reader.next() !== ')') throw new TemplateError('unclosed left paren')
      return { kind: 'pipe', pipe: { commands } }
    }
    if (token.startsWith('"')) return { kind: 'literal', value: unquoted(token) }
    if (token.startsWith('`')) return { kind: 'literal', value: token.slice(1, -1) }
    if (/^[+-]?\d/.test(token)) return { kind: 'literal', value: Number(token) }
    if (token === 'true' || token === 'false') return { kind: 'literal', value: token === 'true' }
    if (token.startsWith('$')) return { kind: 'variable', name: token, names: reader.fields() }
    if (token === '.') return { kind: 'field', names: [] }
    if (token.startsWith('.')) return { kind: 'field', names: [token.slice(1), ...reader.fields()] }
    if (!/^[A-Za-z_]/.test(token)) throw new TemplateError(`unexpected ${shownToken(token)} in operand`)
    if (!this.#isFunction(token)) throw new TemplateError(`function ${JSON.stringify(token)} not defined`)
    return { kind: 'function', name: token }
  }
}

class Tokens {
  readonly #tokens: readonly string[]
  #at = 0

  constructor(tokens: readonly string[]) {
    this.#tokens = tokens
  }

  get isDone(): boolean {
    return this.#at >= this.#tokens.length
  }

  peek(): string {
    return this.#tokens[this.#at] ?? ''
  }

  next(): string {
    return this.#tokens[this.#at++] ?? ''
  }

  /** Fields that follow a value without a space are tokens that begin with a dot, marked by a zero byte. */
  fields(): string[] {
    const names: string[] = []
    while (this.peek().startsWith('\0.')) names.push(this.next().slice(2))
    return names
  }
}

function tokensOf(source: string): string[] {
  const tokens: string[] = []
  TOKEN.lastIndex = 0
  while (source.slice(TOKEN.lastIndex).trim() !== '') {
    const begin = TOKEN.lastIndex
    const match = TOKEN.exec(source)
    if (!match) throw new TemplateError(`unexpected ${shownToken(source.slice(begin).trim().slice(0, 1))} in command`)
    const token = match[0].trim()
    const isJoined =
      match[5] !== undefined && begin > 0 && /[\w$]/.test(source[begin - 1] ?? '') && !/^\s/.test(match[0])
    tokens.push(isJoined ? `\0${token}` : token)
  }
  return tokens
}

function shownToken(token: string): string {
  return `<${token.replace('\0', '')}>`
}

const ESCAPES: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r', '"': '"', '\\': '\\', "'": "'" }

function unquoted(token: string): string {
  return token.slice(1, -1).replace(/\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))/g, (_whole, hex, unicode, other) => {
    const code = (hex ?? unicode) as string | undefined
    if (code !== undefined) return String.fromCharCode(Number.parseInt(code, 16))
    const plain = ESCAPES[other as string]
    if (plain === undefined) throw new TemplateError('bad escape in a string')
    return plain
  })
}
