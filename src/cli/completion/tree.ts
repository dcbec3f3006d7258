/** The commands as a shell's completion needs them: what may follow which words. */
import type { CommandFacts, OptionFacts } from '../framework/parts.ts'

export type Completes = 'files' | 'nothing' | readonly string[]

export interface CompletedOption {
  /** Without its dash. */
  readonly name: string
  readonly help: string
  /** What its value may be; undefined for a switch. */
  readonly value: Completes | undefined
}

/** One place of a command line: the words behind the program's name that lead to it. */
export interface Place {
  /** Empty for the program's name alone. */
  readonly words: string
  readonly next: readonly { readonly word: string; readonly help: string }[]
  readonly options: readonly CompletedOption[]
  readonly operand: Completes
}

/** Every place, the first words first. */
export function placesOf(commands: readonly CommandFacts[]): Place[] {
  const places = new Map<string, { next: Map<string, string>; command?: CommandFacts }>([['', { next: new Map() }]])
  for (const command of commands) {
    const words = command.name.split(' ')
    words.forEach((word, at) => {
      const before = words.slice(0, at).join(' ')
      const here = words.slice(0, at + 1).join(' ')
      const isLast = at === words.length - 1
      places.get(before)?.next.set(word, isLast ? command.summary : `Commands of ${here}`)
      if (!places.has(here)) places.set(here, { next: new Map() })
    })
    places.set(command.name, { next: new Map(), command })
  }
  return [...places].map(([words, { next, command }]) => ({
    words,
    next: [...next].map(([word, help]) => ({ word, help })),
    options: command ? optionsOf(command) : [],
    operand: command ? valueOf(command.operands.shown, command.operands.choices) : 'nothing',
  }))
}

function optionsOf(command: CommandFacts): CompletedOption[] {
  const options = Object.entries(command.options).map(([name, option]: [string, OptionFacts]) => ({
    name,
    help: option.help,
    value: option.placeholder === undefined ? undefined : valueOf(option.placeholder, option.choices),
  }))
  return [...options, { name: 'help', help: 'Show the help of this command', value: undefined }]
}

function valueOf(shown: string, choices: readonly string[] | undefined): Completes {
  if (choices) return choices
  return /\b(?:FILE|DIR)\b/.test(shown) ? 'files' : 'nothing'
}

/** The values of all options that take one, by what they may be: words and option of each, as the shells match them. */
export function valuesByKind(places: readonly Place[]): { patterns: string; value: Completes }[] {
  const kinds = new Map<string, { patterns: string[]; value: Completes }>()
  for (const { words, options } of places) {
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

/** A text as one word of a POSIX shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`
}

export const listed = (completes: Completes): string => (typeof completes === 'string' ? '' : completes.join(' '))
