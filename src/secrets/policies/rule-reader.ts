/** Reads the keys of rules and collects all errors with their positions. */
import { parseDurationMs } from '../../platform/duration.ts'
import { labelledBlocks } from '../../config/hcl.ts'
import type { HclEntry, LabelledNode, HclNode, TextPosition } from '../../config/hcl.ts'

/** An error in the text of a policy. Lines and columns count from 1. */
export interface PolicyFault {
  readonly line: number
  readonly column: number
  readonly message: string
}

/** A policy with errors. The message has one line for each error. */
export class PolicyError extends Error {
  override readonly name = 'PolicyError'
  readonly faults: readonly PolicyFault[]

  constructor(faults: readonly PolicyFault[]) {
    super(faults.map(({ line, column, message }) => `${line}:${column}: ${message}`).join('\n'))
    this.faults = faults
  }
}

/** One rule of a labeled kind: `namespace "default" { }`. */
export interface NamedRule {
  readonly name: string
  readonly at: TextPosition
  readonly entries: readonly HclEntry[]
}

/** Characters of a value that an error repeats. */
const SHOWN_LENGTH_MAX = 128

export class RuleReader {
  readonly faults: PolicyFault[] = []

  /** Adds an error. Returns undefined in place of the value that could not be read. */
  fault({ line, column }: TextPosition, message: string): undefined {
    this.faults.push({ line, column, message })
  }

  /** The entries of a rule without a label. JSON may have a list of objects. */
  rule(entry: HclEntry): readonly (readonly HclEntry[])[] {
    const [label] = entry.labels
    if (label) return this.fault(label.at, `${entry.key}: unexpected label`) ?? []
    const nodes = entry.value.kind === 'list' ? entry.value.items : [entry.value]
    return nodes.flatMap((node) => {
      const entries = this.#entries(node, entry.key)
      return entries ? [entries] : []
    })
  }

  /** The rules of a kind with a label, in HCL or JSON. */
  named(entry: HclEntry): readonly NamedRule[] {
    const blocks = labelledBlocks(entry)
    if (!blocks) return this.fault(entry.keyAt, `${entry.key}: expected a name and a block: "name" { }`) ?? []
    return blocks.flatMap((block) => this.#namedRule(entry.key, block))
  }

  #namedRule(kind: string, { label, at, value, rest }: LabelledNode): readonly NamedRule[] {
    if (rest[0]) return this.fault(rest[0].at, `${kind}: expected one name`) ?? []
    // In JSON each object in a list is one rule.
    const nodes = value.kind === 'list' ? value.items : [value]
    return nodes.flatMap((node) => {
      const entries = this.#entries(node, kind)
      return entries ? [{ name: label, at, entries }] : []
    })
  }

  #entries(node: HclNode, kind: string): readonly HclEntry[] | undefined {
    if (node.kind !== 'object') return this.fault(node.at, `${kind}: expected a block { }`)
    const seen = new Set<string>()
    for (const { key, keyAt, labels } of node.entries) {
      if (labels.length > 0) continue
      if (seen.has(key)) this.fault(keyAt, `${kind}: duplicate key ${JSON.stringify(key)}`)
      seen.add(key)
    }
    return node.entries
  }

  unknown(entry: HclEntry, kind: string, known: readonly string[]): undefined {
    return this.fault(
      entry.keyAt,
      `${kind}: unknown key ${JSON.stringify(entry.key)}, expected one of ${known.join(', ')}`,
    )
  }

  text(entry: HclEntry): string | undefined {
    if (entry.value.kind === 'string') return entry.value.value
    return this.fault(entry.value.at, `${entry.key}: expected a string`)
  }

  /** A string that is one of `words`. */
  word<T extends string>(entry: HclEntry, kind: string, words: readonly T[]): T | undefined {
    const { value } = entry
    const found = value.kind === 'string' ? words.find((word) => word === value.value) : undefined
    return found ?? this.fault(value.at, `${kind}: ${entry.key} must be one of ${words.join(', ')}`)
  }

  /** The capabilities of a rule, all of them in `known`. `name` is the rule's label. */
  capabilities<T extends string>(
    entry: HclEntry,
    { kind, name }: { readonly kind: string; readonly name: string },
    known: readonly T[],
  ): T[] {
    return this.texts(entry, kind).flatMap(({ text, at }) => {
      const found = known.find((word) => word === text)
      if (found) return [found]
      const [rule, given] = [name, text].map((each) => JSON.stringify(each.slice(0, SHOWN_LENGTH_MAX)))
      return this.fault(at, `${kind} ${rule}: unknown capability ${given}, expected some of ${known.join(', ')}`) ?? []
    })
  }

  texts(entry: HclEntry, kind: string): { text: string; at: TextPosition }[] {
    if (entry.value.kind !== 'list') {
      return this.fault(entry.value.at, `${kind}: ${entry.key} must be a list of strings`) ?? []
    }
    return entry.value.items.flatMap((item) => {
      if (item.kind === 'string') return [{ text: item.value, at: item.at }]
      return this.fault(item.at, `${kind}: ${entry.key} must contain strings only`) ?? []
    })
  }

  /** A Go duration string or a number of seconds, in milliseconds. */
  durationMs(entry: HclEntry, kind: string): number | undefined {
    const { value } = entry
    const ms = value.kind === 'number' ? value.value * 1000 : value.kind === 'string' ? parseSeconds(value.value) : -1
    if (ms !== undefined && ms >= 0) return ms
    return this.fault(value.at, `${kind}: ${entry.key} must be a non-negative duration such as "90s"`)
  }
}

function parseSeconds(text: string): number | undefined {
  return /^\d{1,15}$/.test(text) ? Number(text) * 1000 : parseDurationMs(text)
}
