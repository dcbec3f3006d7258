/**
 * The kinds of settings: how each is read from the tree, its faults, and how the values of two files are merged. A schema (`schema.ts`) is
 * a record of these. Reading collects all faults.
 */
import { formatDuration, parseDurationMs } from '../platform/duration.ts'
import { type HclEntry, labelledBlocks, type HclNode, type ObjectNode, type TextPosition } from './hcl.ts'
import { nearestName } from './nearest-name.ts'

/** The source of a setting: a file, or a flag of the command line, which has no lines. */
export interface SettingOrigin {
  readonly name: string
  readonly isFlag: boolean
}

export interface SettingLocation {
  readonly origin: SettingOrigin
  readonly at: TextPosition
  /** Position of the first character of a heredoc. */
  readonly bodyAt?: TextPosition
}

/** `file:line:column: `, or the flag; empty for a missing setting. */
export function locationPrefix(where: SettingLocation | undefined): string {
  if (!where) return ''
  return where.origin.isFlag ? `${where.origin.name}: ` : `${where.origin.name}:${where.at.line}:${where.at.column}: `
}

/** A fault of a configuration and its location. */
export interface ConfigFault {
  /** File name as given, or the flag; absent for a missing setting. */
  readonly source?: string
  readonly line?: number
  readonly column?: number
  readonly message: string
}

export class FaultList {
  readonly faults: ConfigFault[] = []
  /** Dotted paths of settings that could not be read: rules that depend on them are skipped. */
  readonly unread = new Set<string>()

  add(where: SettingLocation | undefined, message: string): undefined {
    if (!where) this.faults.push({ message })
    else if (where.origin.isFlag) this.faults.push({ source: where.origin.name, message })
    else this.faults.push({ source: where.origin.name, line: where.at.line, column: where.at.column, message })
  }
}

/** The setting that is being read. */
export interface ReadContext {
  readonly origin: SettingOrigin
  /** Dotted path of the setting, for messages: `client.meta`. */
  readonly path: string
  readonly faults: FaultList
}

/** `Raw`: the value with its location. */
export interface SettingField<Raw> {
  /** Valid values in words, as messages have them: "a whole number from 0 to 65535". */
  readonly type: string
  /** The settings of a block. */
  readonly inner?: SettingFields
  /** Adds a fault and returns undefined for an invalid value. */
  read(entry: HclEntry, context: ReadContext): Raw | undefined
  /** Merges two values of the same setting. */
  merge(earlier: Raw, later: Raw, context: ReadContext): Raw
}

export type SettingFields = Readonly<Record<string, SettingField<unknown>>>
export type BlockOf<F extends SettingFields> = {
  readonly [K in keyof F]?: F[K] extends SettingField<infer Raw> ? Raw : never
}

export interface Setting<T> {
  readonly value: T
  readonly where: SettingLocation
}

/** Returns the value, or reports a fault and returns undefined. Undefined without a fault means "not set". */
type ParseSetting<T> = (node: HclNode, wrong: (message: string) => undefined, path: string) => T | undefined

const KIND_NAMES: Readonly<Record<HclNode['kind'], string>> = {
  string: 'a string',
  number: 'a number',
  boolean: 'true or false',
  null: 'null',
  list: 'a list',
  object: 'a block',
}

function whereOf(context: ReadContext, at: TextPosition): SettingLocation {
  return { origin: context.origin, at }
}

function expected(context: ReadContext, node: HclNode, what: string): undefined {
  context.faults.unread.add(context.path)
  context.faults.add(whereOf(context, node.at), `${context.path}: expected ${what}, found ${KIND_NAMES[node.kind]}`)
}

/** The later value overrides the earlier one; two values in one file are a fault. */
function mergeSetting<T>(earlier: Setting<T>, later: Setting<T>, context: ReadContext): Setting<T> {
  if (earlier.where.origin === later.where.origin) {
    const { line, column } = earlier.where.at
    context.faults.add(later.where, `${context.path} is set twice, first at ${line}:${column}`)
  }
  return later
}

function setting<T>(kind: HclNode['kind'], what: string, parse: ParseSetting<T>): SettingField<Setting<T>> {
  return {
    type: what,
    read(entry, context) {
      if (entry.labels.length > 0) {
        return context.faults.add(whereOf(context, entry.keyAt), `${context.path}: a setting takes no label`)
      }
      if (entry.value.kind !== kind) return expected(context, entry.value, what)
      const bodyAt = entry.value.kind === 'string' ? entry.value.bodyAt : undefined
      const where = { ...whereOf(context, entry.value.at), ...(bodyAt ? { bodyAt } : {}) }
      const wrong = (message: string) => {
        context.faults.unread.add(context.path)
        return context.faults.add(where, message)
      }
      const value = parse(entry.value, wrong, context.path)
      return value === undefined ? undefined : { value, where }
    },
    merge: mergeSetting,
  }
}

/** `check` returns the fault for the message `<path>: <fault>`. An empty text counts as not set, as in Nomad. */
export function text(check?: (value: string) => string | undefined): SettingField<Setting<string>> {
  return setting('string', 'a string', (node, wrong, path) => {
    if (node.kind !== 'string' || node.value === '') return undefined
    const fault = node.value.includes('\0') ? 'must not contain the character U+0000' : check?.(node.value)
    return fault === undefined ? node.value : wrong(`${path}: ${fault}`)
  })
}

/** An absolute path, not normalized. */
export function absolutePath(): SettingField<Setting<string>> {
  return setting('string', 'an absolute path', (node, wrong, path) => {
    if (node.kind !== 'string' || node.value === '') return undefined
    if (node.value.startsWith('/') && !node.value.includes('\0')) return node.value
    return wrong(`${path} must be given as an absolute path: got ${node.value}`)
  })
}

/** One of several words, case-insensitive; `choices` maps the word in lower case to the value. */
export function choice<T extends string>(choices: Readonly<Record<string, T>>): SettingField<Setting<T>> {
  const what = `one of ${Object.keys(choices).join(', ')}`
  return setting('string', what, (node, wrong, path) => {
    if (node.kind !== 'string' || node.value === '') return undefined
    const word = node.value.toLowerCase()
    return (Object.hasOwn(choices, word) ? choices[word] : undefined) ?? wrong(`${path}: expected ${what}`)
  })
}

export function boolean(): SettingField<Setting<boolean>> {
  return setting('boolean', 'true or false', (node) => (node.kind === 'boolean' ? node.value : undefined))
}

interface NumberRange {
  readonly min: number
  readonly max: number
  readonly whole?: false
  /** Message for a number below `min` instead of the range. */
  readonly below?: string
}

/** A number, whole unless the rule says otherwise. */
export function number(rule: NumberRange): SettingField<Setting<number>> {
  const noun = rule.whole === false ? 'a number' : 'a whole number'
  const range = rule.max === Number.MAX_SAFE_INTEGER ? `of at least ${rule.min}` : `from ${rule.min} to ${rule.max}`
  const what = rule.min === -Number.MAX_SAFE_INTEGER ? noun : `${noun} ${range}`
  return setting('number', what, (node, wrong, path) => {
    if (node.kind !== 'number') return undefined
    if (node.value < rule.min && rule.below !== undefined) return wrong(rule.below)
    const fits = node.value >= rule.min && node.value <= rule.max
    if (fits && (rule.whole === false || Number.isInteger(node.value))) return node.value
    return wrong(`${path}: expected ${what}, got ${node.text}`)
  })
}

/** Timers of Node are limited to 31 bits of milliseconds; a longer one would fire at once. */
const DURATION_MAX_MS = 24 * 24 * 3_600_000

/** A Go duration string, in milliseconds; longer than zero unless `zero` is allowed, and at least `minMs`. */
export function duration(options: { zero?: boolean; minMs?: number } = {}): SettingField<Setting<number>> {
  const what = 'a duration such as "30s" or "1h30m"'
  return setting('string', what, (node, wrong, path) => {
    if (node.kind !== 'string' || node.value === '') return undefined
    const ms = parseDurationMs(node.value)
    if (ms === undefined) return wrong(`${path}: expected ${what}`)
    if (ms < 0) return wrong(`${path}: a duration must not be negative`)
    if (ms === 0 && options.zero !== true) return wrong(`${path}: a duration must be longer than zero`)
    const { minMs = 0 } = options
    if (ms < minMs) return wrong(`${path}: a duration must be at least ${formatDuration(minMs)}`)
    return ms <= DURATION_MAX_MS ? ms : wrong(`${path}: a duration must be at most 576h`)
  })
}

const SIZE_FACTORS: Readonly<Record<string, number>> = { '': 1, K: 2 ** 10, M: 2 ** 20, G: 2 ** 30 }

/** A size in bytes: a number with KB, MB or GB (powers of 1024) or without a unit; at least `min`. */
export function size(min: number): SettingField<Setting<number>> {
  const what = 'a size such as "256MB"'
  return setting('string', what, (node, wrong, path) => {
    if (node.kind !== 'string' || node.value === '') return undefined
    const [, digits = '', unit = ''] = /^(\d{1,9}) ?(?:([KMG])(?:i?B)?|B)?$/i.exec(node.value) ?? []
    const bytes = Number(digits) * (SIZE_FACTORS[unit.toUpperCase()] ?? 1)
    if (digits === '') return wrong(`${path}: expected ${what}`)
    return bytes >= min ? bytes : wrong(`${path}: expected at least ${min} bytes`)
  })
}

/** A list of texts, each checked like `text`. */
export function texts(check: (value: string) => string | undefined): SettingField<Setting<readonly string[]>> {
  return setting('list', 'a list of strings', (node, wrong, path) => {
    if (node.kind !== 'list') return undefined
    const values: string[] = []
    for (const item of node.items) {
      const fault = item.kind === 'string' ? check(item.value) : `expected a string, found ${KIND_NAMES[item.kind]}`
      if (fault !== undefined) wrong(`${path}: ${fault}`)
      else if (item.kind === 'string') values.push(item.value)
    }
    return values.length === node.items.length ? values : undefined
  })
}

/** The objects of a block; JSON may have several in a list. */
function objectsOf(entry: HclEntry, context: ReadContext): readonly ObjectNode[] {
  const nodes = entry.value.kind === 'list' ? entry.value.items : [entry.value]
  return nodes.flatMap((node) => (node.kind === 'object' ? [node] : (expected(context, node, 'a block { }') ?? [])))
}

/** A block with arbitrary keys and text values; numbers and booleans become text. Files are merged by key. */
export function textMap(
  check: (key: string, value: string) => string | undefined,
): SettingField<ReadonlyMap<string, Setting<string>>> {
  const put = (into: Map<string, Setting<string>>, key: string, value: Setting<string>, context: ReadContext) => {
    const earlier = into.get(key)
    into.set(key, earlier ? mergeSetting(earlier, value, { ...context, path: `${context.path}.${key}` }) : value)
  }
  return {
    type: 'a block of texts',
    read(entry, context) {
      if (entry.labels.length > 0) {
        return context.faults.add(whereOf(context, entry.keyAt), `${context.path}: this block takes no label`)
      }
      const found = new Map<string, Setting<string>>()
      for (const { key, keyAt, value } of objectsOf(entry, context).flatMap((node) => node.entries)) {
        const inside = { ...context, path: `${context.path}.${key}` }
        if (value.kind !== 'string' && value.kind !== 'number' && value.kind !== 'boolean') {
          expected(inside, value, 'a string')
          continue
        }
        const plain = value.kind === 'number' ? value.text : String(value.value)
        const fault = check(key, plain)
        if (fault === undefined) put(found, key, { value: plain, where: whereOf(context, value.at) }, context)
        else context.faults.add(whereOf(context, keyAt), fault)
      }
      return found
    },
    merge(earlier, later, context) {
      const merged = new Map(earlier)
      for (const [key, value] of later) put(merged, key, value, context)
      return merged
    },
  }
}

/** Blocks with one label each: `token "ops" { }`. The blocks of several files are concatenated. */
export interface LabelledBlock<Raw> {
  readonly label: string
  readonly where: SettingLocation
  readonly body: Raw
}

export function labelled<Raw>(body: SettingField<Raw>): SettingField<readonly LabelledBlock<Raw>[]> {
  return {
    type: `${body.type} with a label`,
    ...(body.inner ? { inner: body.inner } : {}),
    read(entry, context) {
      const where = whereOf(context, entry.keyAt)
      const blocks = labelledBlocks(entry)
      if (!blocks) return context.faults.add(where, `${context.path}: expected a label and a block: "name" { }`)
      return blocks.flatMap(({ label, at, value, rest }) => {
        const labelWhere = whereOf(context, at)
        if (label === '') return context.faults.add(labelWhere, `${context.path}: the label is empty`) ?? []
        if (rest[0])
          return context.faults.add(whereOf(context, rest[0].at), `${context.path}: expected only one label`) ?? []
        const read = body.read({ key: label, keyAt: at, labels: [], value }, context)
        return read === undefined ? [] : [{ label, where: labelWhere, body: read }]
      })
    },
    merge: (earlier, later) => [...earlier, ...later],
  }
}

/** A block with known settings. Several blocks, in one file or several, are merged per setting. */
export function block<F extends SettingFields>(fields: F): SettingField<BlockOf<F>> {
  const mergeInto = (into: Record<string, unknown>, name: string, value: unknown, context: ReadContext) => {
    const field = fields[name]
    if (field) into[name] = into[name] === undefined ? value : field.merge(into[name], value, context)
  }
  return {
    type: 'a block',
    inner: fields,
    read(entry, context) {
      if (entry.labels[0]) {
        return context.faults.add(whereOf(context, entry.labels[0].at), `${context.path}: this block takes no label`)
      }
      const found: Record<string, unknown> = {}
      for (const each of objectsOf(entry, context).flatMap((node) => node.entries)) {
        const path = context.path === '' ? each.key : `${context.path}.${each.key}`
        const inside = { ...context, path }
        const field = Object.hasOwn(fields, each.key) ? fields[each.key] : undefined
        if (!field) {
          context.faults.add(whereOf(context, each.keyAt), unknownKey(each.key, context.path, Object.keys(fields)))
          continue
        }
        const value = field.read(each, inside)
        if (value !== undefined) mergeInto(found, each.key, value, inside)
      }
      // Each property was read by the field of the same name.
      return found as BlockOf<F>
    },
    merge(earlier, later, context) {
      const merged: Record<string, unknown> = { ...earlier }
      for (const [name, value] of Object.entries(later)) {
        const path = context.path === '' ? name : `${context.path}.${name}`
        if (value !== undefined) mergeInto(merged, name, value, { ...context, path })
      }
      return merged as BlockOf<F>
    },
  }
}

function unknownKey(key: string, path: string, known: readonly string[]): string {
  const place = path === '' ? '' : ` in ${path}`
  const near = nearestName(key, known)
  return `unknown key ${JSON.stringify(key)}${place}${near === undefined ? '' : `, did you mean "${near}"?`}`
}
