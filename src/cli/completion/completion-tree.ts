/** The words and options that may follow each sequence of command words. */
import type { Command } from '../framework/define-command.ts'
import type { Option } from '../framework/options.ts'

export type Completion = 'files' | 'nothing' | readonly string[]

export interface CompletedOption {
  /** Without its dash. */
  readonly name: string
  readonly help: string
  /** Completion of its value; undefined for a switch. */
  readonly value: Completion | undefined
}

/** A position in a command line after complete words. */
export interface CompletionNode {
  /** The words after the program's name; may be empty. */
  readonly words: string
  readonly next: readonly { readonly word: string; readonly help: string }[]
  readonly options: readonly CompletedOption[]
  readonly operand: Completion
}

/** All nodes, parents before their children. */
export function completionTree(commands: readonly Command[]): CompletionNode[] {
  const nodes = new Map<string, { next: Map<string, string>; command?: Command }>([['', { next: new Map() }]])
  for (const command of commands) {
    const words = command.name.split(' ')
    words.forEach((word, at) => {
      const before = words.slice(0, at).join(' ')
      const here = words.slice(0, at + 1).join(' ')
      const isLast = at === words.length - 1
      const summary = isLast ? command.summary : (nodes.get(here)?.command?.summary ?? `Commands of ${here}`)
      nodes.get(before)?.next.set(word, summary)
      if (!nodes.has(here)) nodes.set(here, { next: new Map() })
    })
    nodes.set(command.name, { next: nodes.get(command.name)?.next ?? new Map<string, string>(), command })
  }
  return [...nodes].map(([words, { next, command }]) => ({
    words,
    next: [...next].map(([word, help]) => ({ word, help })),
    options: command ? optionsOf(command) : [],
    operand: command ? valueOf(command.operands.shown, command.operands.choices) : 'nothing',
  }))
}

function optionsOf(command: Command): CompletedOption[] {
  const options = Object.entries(command.options).map(([name, option]: [string, Option<unknown>]) => ({
    name,
    help: option.help,
    value: option.placeholder === undefined ? undefined : valueOf(option.placeholder, option.choices),
  }))
  return [...options, { name: 'help', help: 'Show the help of the command', value: undefined }]
}

function valueOf(shown: string, choices: readonly string[] | undefined): Completion {
  if (choices) return choices
  return /\b(?:FILE|DIR)\b/.test(shown) ? 'files' : 'nothing'
}

/** Options with values, grouped by the completion of the value, as case patterns of a shell. */
export function valuesByKind(nodes: readonly CompletionNode[]): { patterns: string; value: Completion }[] {
  const kinds = new Map<string, { patterns: string[]; value: Completion }>()
  for (const { words, options } of nodes) {
    for (const { name, value } of options) {
      if (value === undefined) continue
      const key = listed(value) || String(value)
      const kind = kinds.get(key) ?? { patterns: [], value }
      kind.patterns.push(quoted(`${words} -${name}`))
      kinds.set(key, kind)
    }
  }
  return [...kinds.values()].map(({ patterns, value }) => ({ patterns: patterns.join(' | '), value }))
}

/** Quotes a text as one word of a POSIX shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`
}

export const listed = (completes: Completion): string => (typeof completes === 'string' ? '' : completes.join(' '))
