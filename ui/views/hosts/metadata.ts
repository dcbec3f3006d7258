/** Metadata of a host as rows: which value applies, and where it comes from. */
import type { HostMetadataRead } from '../../api/types.ts'

export interface MetadataRow {
  readonly key: string
  /** Undefined: a static key that was unset. */
  readonly value: string | undefined
  readonly source: 'static' | 'dynamic' | 'unset'
  /** The value of the configuration that a dynamic one replaces. */
  readonly configured: string | undefined
}

function own<T>(record: Readonly<Record<string, T>>, key: string): T | undefined {
  return Object.hasOwn(record, key) ? record[key] : undefined
}

export function metadataRows({ Dynamic, Meta, Static }: HostMetadataRead): readonly MetadataRow[] {
  const keys = new Set([...Object.keys(Static), ...Object.keys(Meta), ...Object.keys(Dynamic)])
  return [...keys].toSorted().map((key) => {
    const dynamic = own(Dynamic, key)
    const configured = own(Static, key)
    if (dynamic === undefined) return { key, value: own(Meta, key), source: 'static', configured: undefined }
    if (dynamic === null) return { key, value: undefined, source: 'unset', configured }
    return { key, value: dynamic, source: 'dynamic', configured }
  })
}

const KEY_PART = /^[_\p{ID_Start}][\p{ID_Continue}-]*$/u

/** Why an agent refuses the key; undefined if it does not. */
export function keyProblem(key: string): string | undefined {
  if (key === '') return 'Enter a key.'
  if (key.split('.').every((part) => KEY_PART.test(part))) return undefined
  return 'A key consists of letters, digits, "_" and "-", in parts separated by dots. A part starts with a letter or "_".'
}

/** What a request changes: one key. */
export function metadataPatch(key: string, value: string | null): Readonly<Record<string, string | null>> {
  return Object.fromEntries([[key, value]])
}

/** Whether the response of the agent has the change. */
export function isApplied({ Dynamic, Meta }: HostMetadataRead, key: string, value: string | null): boolean {
  if (value !== null) return own(Meta, key) === value
  return own(Meta, key) === undefined || own(Dynamic, key) === undefined
}

export interface RemovalText {
  readonly title: string
  readonly action: string
  readonly effect: string
}

/** What is removed: a dynamic value, or the effect of a configured one. */
export function removalText({ configured, source }: Pick<MetadataRow, 'configured' | 'source'>): RemovalText {
  if (source === 'static') {
    return {
      title: 'Unset a configured key',
      action: 'Unset',
      effect: 'The host ignores the value of its configuration until you set the key again.',
    }
  }
  const effect = 'The dynamic value is removed.'
  return {
    title: 'Remove a dynamic key',
    action: 'Remove',
    effect:
      configured === undefined
        ? effect
        : `${effect} The configuration has this key as well: it stays unset until you set it again.`,
  }
}
