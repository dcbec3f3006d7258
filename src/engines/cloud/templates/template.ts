/**
 * Templates for usernames: the part of Go's text/template that Vault's `username_template` uses. Text, fields, functions with
 * pipes and parentheses, variables, `if`, `else if`, `else`, `with`, comments, and `-` that trims white space.
 *
 * A template is compiled to closures. All steps are bounded: the length and nesting of the template, each value, the output.
 */
import {
  callFunction,
  isTemplateFunction,
  isTrue,
  TemplateError,
  textOfValue,
  type Value,
} from './template-functions.ts'

const TEMPLATE_LENGTH_MAX = 4096
const DEPTH_MAX = 50
const OUTPUT_MAX = 65_536

export type TemplateData = Readonly<Record<string, string>>
/** Throws a TemplateError. */
export type Template = (data: TemplateData, nowMs: number) => string

interface Scope {
  readonly data: TemplateData
  /** The value of `.` inside of `with`; undefined for the data itself. */
  readonly dot: Value
  readonly variables: Map<string, Value>
  readonly nowMs: number
}
type Expression = (scope: Scope) => Value
type Block = (scope: Scope) => string

/** Throws a TemplateError. */
export function parseTemplate(source: string): Template {
  if (source === '') throw new TemplateError('missing template')
  const block = withPrefix('unable to parse template', () => {
    if (source.length > TEMPLATE_LENGTH_MAX)
      throw new TemplateError(`it has more than ${TEMPLATE_LENGTH_MAX} characters`)
    return new TemplateParser(tokensOf(source)).template()
  })
  return (data, nowMs) =>
    withPrefix('unable to apply template', () => block({ data, dot: undefined, variables: new Map(), nowMs }))
}

function withPrefix<T>(prefix: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error
    throw new TemplateError(`${prefix}: ${error.message}`)
  }
}

interface Token {
  readonly text: string
  /** Text outside of actions. */
  readonly isText: boolean
}

const TOKEN =
  /\s*(\/\*[^]*?\*\/|(?:(?<=\s)-)?\}\}|"(?:[^"\\\n]|\\.)*"|`[^`]*`|[+-]?(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?)(?![\w.])|\$\w*(?:\.\w+)*|(?:\.\w+)+|\.|[A-Za-z_]\w*|:=|[|()=])/y
const ACTION_END = '}}'

/** Tokens of text, and of actions without `{{`. Trims white space where an action requests it. */
function tokensOf(source: string): Token[] {
  const tokens: Token[] = []
  for (let at = 0, isTrimming = false; ; ) {
    const start = source.indexOf('{{', at)
    const isTrimmed = start >= 0 && /^-\s/.test(source.slice(start + 2, start + 4))
    let text = source.slice(at, start < 0 ? undefined : start)
    if (isTrimming) text = text.trimStart()
    tokens.push({ text: isTrimmed ? text.trimEnd() : text, isText: true })
    if (start < 0) return tokens
    TOKEN.lastIndex = start + (isTrimmed ? 3 : 2)
    let token: string
    do {
      at = TOKEN.lastIndex
      token = TOKEN.exec(source)?.[1] ?? ''
      if (token === '') throw syntaxError(source.slice(at).trim())
      isTrimming = token.startsWith('-}')
      tokens.push({ text: isTrimming ? ACTION_END : token, isText: false })
    } while (!token.endsWith(ACTION_END))
    at = TOKEN.lastIndex
  }
}

function syntaxError(rest: string): TemplateError {
  return new TemplateError(rest === '' ? 'unclosed action' : `unexpected <${rest[0]}> in command`)
}

interface Operand {
  readonly value: Expression
  readonly functionName?: string
}

type Command = (scope: Scope, piped: readonly Value[]) => Value
type BlockEnd = 'end' | 'else' | undefined

class TemplateParser {
  readonly #tokens: readonly Token[]
  #at = 0
  #depth = 0

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens
  }

  template(): Block {
    const { block, end } = this.#block()
    if (end) throw new TemplateError(`unexpected {{${end}}}`)
    return block
  }

  #peek(offset = 0): string {
    return this.#tokens[this.#at + offset]?.text ?? ''
  }

  /** Skips the token if it is the next one. */
  #skip(text: string): boolean {
    if (this.#peek() !== text) return false
    this.#at++
    return true
  }

  #endAction(): void {
    if (!this.#skip(ACTION_END)) throw new TemplateError(`unexpected <${this.#peek()}> in command`)
  }

  #nested<T>(what: string, parse: () => T): T {
    if (++this.#depth > DEPTH_MAX) throw new TemplateError(`too many nested ${what}`)
    const parsed = parse()
    this.#depth--
    return parsed
  }

  /** Parses up to `end`, which is skipped with its action, up to `else`, or to the end of the template. */
  #block(): { readonly block: Block; readonly end: BlockEnd } {
    return this.#nested('blocks', () => {
      const parts: Block[] = []
      let end: BlockEnd
      while (!end && this.#at < this.#tokens.length) {
        const text = this.#peek()
        if (this.#tokens[this.#at]?.isText) {
          this.#at++
          parts.push(() => text)
        } else if (this.#skip('else')) end = 'else'
        else if (this.#skip('end')) {
          end = 'end'
          this.#endAction()
        } else if (text.startsWith('/*')) {
          this.#at++
          this.#endAction()
        } else parts.push(text === 'if' || text === 'with' ? this.#branch() : this.#output())
      }
      return { block: (scope) => concatenated(parts, scope), end }
    })
  }

  #branch(): Block {
    const isWith = this.#peek() === 'with'
    this.#at++
    const { expression } = this.#action()
    const then = this.#block()
    if (!then.end) throw new TemplateError('unexpected EOF')
    const otherwise = then.end === 'end' ? () => '' : this.#otherwise()
    return (scope) => {
      const value = expression(scope)
      if (!isTrue(value)) return otherwise(scope)
      return then.block(isWith ? { ...scope, dot: value } : scope)
    }
  }

  #otherwise(): Block {
    if (this.#peek() === 'if' || this.#peek() === 'with') return this.#branch()
    this.#endAction()
    const { block, end } = this.#block()
    if (end === 'end') return block
    throw new TemplateError(end ? 'expected end; found {{else}}' : 'unexpected EOF')
  }

  #output(): Block {
    const { expression, isAssignment } = this.#action()
    return (scope) => {
      const value = expression(scope)
      return isAssignment ? '' : textOfValue(value)
    }
  }

  /** A pipeline, or the assignment of one to a variable, and the end of the action. */
  #action(): { readonly expression: Expression; readonly isAssignment: boolean } {
    const [name, operator] = [this.#peek(), this.#peek(1)]
    const isAssignment = /^\$\w*$/.test(name) && (operator === ':=' || operator === '=')
    if (isAssignment) this.#at += 2
    const value = this.#pipeline()
    this.#endAction()
    if (!isAssignment) return { expression: value, isAssignment }
    const expression = (scope: Scope) => {
      const assigned = value(scope)
      if (operator === '=' && !scope.variables.has(name)) throw new TemplateError(`undefined variable ${name}`)
      scope.variables.set(name, assigned)
      return assigned
    }
    return { expression, isAssignment }
  }

  /** Each command gets the value of the one before as its last argument. */
  #pipeline(): Expression {
    const commands: Command[] = []
    do commands.push(this.#command(commands.length > 0))
    while (this.#skip('|'))
    return (scope) => {
      let piped: readonly Value[] = []
      for (const command of commands) piped = [command(scope, piped)]
      return piped[0]
    }
  }

  #command(isPiped: boolean): Command {
    const operands: Operand[] = []
    while (!['|', ')', ACTION_END].includes(this.#peek())) operands.push(this.#operand())
    const [first, ...args] = operands
    if (!first) throw new TemplateError('missing value for command')
    const { functionName, value } = first
    if (functionName !== undefined) {
      return (scope, piped) =>
        callFunction(functionName, [...args.map((each) => each.value(scope)), ...piped], scope.nowMs)
    }
    if (isPiped) throw new TemplateError('non executable command in pipeline')
    return (scope) => {
      if (args.length > 0) throw new TemplateError("can't give argument to non-function")
      return value(scope)
    }
  }

  #operand(): Operand {
    const token = this.#peek()
    this.#at++
    if (token === '(') {
      const value = this.#nested('parentheses', () => this.#pipeline())
      if (!this.#skip(')')) throw new TemplateError('unclosed left paren')
      return { value }
    }
    if (/^["`+\-\d]/.test(token) || token === 'true' || token === 'false') {
      const literal = literalOf(token)
      return { value: () => literal }
    }
    if (token.startsWith('$')) return { value: variable(token.split('.')) }
    if (token.startsWith('.')) {
      const names = token.split('.').filter((name) => name !== '')
      return { value: (scope) => fieldOf(scope, names, scope.dot) }
    }
    if (!/^[A-Za-z_]/.test(token)) throw new TemplateError(`unexpected <${token}> in operand`)
    if (!isTemplateFunction(token)) throw new TemplateError(`function ${JSON.stringify(token)} not defined`)
    return { value: ({ nowMs }) => callFunction(token, [], nowMs), functionName: token }
  }
}

function concatenated(parts: readonly Block[], scope: Scope): string {
  let out = ''
  for (const part of parts) {
    out += part(scope)
    if (out.length > OUTPUT_MAX) throw new TemplateError(`the result has more than ${OUTPUT_MAX} characters`)
  }
  return out
}

/** `$` is the data, also inside of `with`. */
function variable([name = '', ...fields]: readonly string[]): Expression {
  return (scope) => {
    if (name === '$') return fieldOf(scope, fields, undefined)
    if (!scope.variables.has(name)) throw new TemplateError(`undefined variable ${name}`)
    if (fields.length > 0) throw new TemplateError(`can't evaluate field ${fields[0]} in type string`)
    return scope.variables.get(name)
  }
}

function fieldOf({ data }: Scope, [name, more]: readonly string[], dot: Value): Value {
  if (name === undefined) {
    if (dot === undefined) throw new TemplateError('the data itself has no text')
    return dot
  }
  if (dot !== undefined || more !== undefined || !Object.hasOwn(data, name)) {
    throw new TemplateError(`can't evaluate field ${more ?? name}`)
  }
  return data[name]
}

const ESCAPES: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r', '"': '"', '\\': '\\', "'": "'" }

function literalOf(token: string): string | number | boolean {
  if (token.startsWith('`')) return token.slice(1, -1)
  if (!token.startsWith('"')) return token === 'true' || (token === 'false' ? false : Number(token))
  return token.slice(1, -1).replace(/\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))/g, (_whole, hex, unicode, other) => {
    const code = (hex ?? unicode) as string | undefined
    if (code !== undefined) return String.fromCharCode(Number.parseInt(code, 16))
    const plain = ESCAPES[other as string]
    if (plain === undefined) throw new TemplateError('bad escape in a string')
    return plain
  })
}
