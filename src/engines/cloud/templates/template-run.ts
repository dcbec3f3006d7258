/** Writes the text of a template. */
import { callFunction, isTemplateFunction, isTrue, textOfValue, type Value } from './template-functions.ts'
import { type Command, type Node, type Operand, parseTemplate, type Pipe, TemplateError } from './template-parse.ts'

const OUTPUT_MAX = 65_536

export type TemplateData = Readonly<Record<string, string>>

/** Throws a TemplateError. */
export function runTemplate(source: string, data: TemplateData, nowMs: number): string {
  return new Run(data, nowMs).whole(parseTemplate(source, isTemplateFunction))
}

export class Run {
  readonly #data: TemplateData
  readonly #nowMs: number
  readonly #variables = new Map<string, Value>()

  constructor(data: TemplateData, nowMs: number) {
    this.#data = data
    this.#nowMs = nowMs
  }

  /** Throws a TemplateError. */
  whole(nodes: readonly Node[]): string {
    try {
      return this.nodes(nodes, undefined)
    } catch (error) {
      if (!(error instanceof TemplateError)) throw error
      throw new TemplateError(`unable to apply template: ${error.message}`)
    }
  }

  /** `dot` is what `with` has set; undefined for the data itself. */
  nodes(nodes: readonly Node[], dot: Value): string {
    let out = ''
    for (const node of nodes) {
      if (node.kind === 'text') out += node.text
      else if (node.kind === 'pipe') {
        const value = this.#pipe(node.pipe, dot)
        if (node.pipe.declares === undefined && node.pipe.assigns === undefined) out += textOfValue(value)
      } else {
        const value = this.#pipe(node.pipe, dot)
        const inner = node.kind === 'with' ? value : dot
        out += isTrue(value) ? this.nodes(node.body, inner) : this.nodes(node.otherwise, dot)
      }
      if (out.length > OUTPUT_MAX) throw new TemplateError('the text becomes too long')
    }
    return out
  }

  #pipe({ assigns, commands, declares }: Pipe, dot: Value): Value {
    let value: Value
    for (const [at, command] of commands.entries()) value = this.#command(command, dot, at === 0 ? [] : [value])
    const name = declares ?? assigns
    if (assigns !== undefined && !this.#variables.has(assigns)) throw new TemplateError(`undefined variable ${assigns}`)
    if (name !== undefined) this.#variables.set(name, value)
    return value
  }

  #command([first, ...rest]: Command, dot: Value, piped: readonly Value[]): Value {
    if (!first) return undefined
    if (first.kind === 'function') {
      const args = [...rest.map((each) => this.#operand(each, dot)), ...piped]
      return callFunction(first.name, args, this.#nowMs)
    }
    if (rest.length > 0 || piped.length > 0) throw new TemplateError("can't give argument to non-function")
    return this.#operand(first, dot)
  }

  #operand(operand: Operand, dot: Value): Value {
    switch (operand.kind) {
      case 'literal':
        return operand.value
      case 'pipe':
        return this.#pipe(operand.pipe, dot)
      case 'function':
        return callFunction(operand.name, [], this.#nowMs)
      case 'variable': {
        if (operand.name === '$') return this.#field(operand.names, undefined)
        if (!this.#variables.has(operand.name)) throw new TemplateError(`undefined variable ${operand.name}`)
        if (operand.names.length > 0) throw new TemplateError(`can't evaluate field ${operand.names[0]} in type string`)
        return this.#variables.get(operand.name)
      }
      default:
        return this.#field(operand.names, dot)
    }
  }

  #field(names: readonly string[], dot: Value): Value {
    const [name, more] = names
    if (name === undefined) {
      if (dot === undefined) throw new TemplateError('the whole data is no text')
      return dot
    }
    if (dot !== undefined || more !== undefined || !Object.hasOwn(this.#data, name)) {
      throw new TemplateError(`can't evaluate field ${more ?? name}`)
    }
    return this.#data[name]
  }
}
