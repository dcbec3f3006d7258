/** The description of a setting, and the names of all settings of the schema. */
import type { LabelledBlock, Setting } from '../fields.ts'
import type { RawConfig } from '../schema.ts'

export interface SettingDoc {
  /** What the setting does, in full sentences. */
  readonly about: string
  /** The default as it is written in a file; absent if there is none. */
  readonly default?: string
  /** The default in words, if it depends on other settings or on the machine. */
  readonly defaultText?: string
  /** The default with `-dev`, if it differs. */
  readonly dev?: string
  /** A valid value other than the default, as it is written in a file. */
  readonly example: string
  /** Whether a reload applies a change; otherwise it needs a restart. */
  readonly reload: boolean
}

/** Dotted names of all settings of a block. */
type PathsOf<Block, Prefix extends string = ''> = {
  [Key in keyof Block & string]-?: PathsBelow<NonNullable<Block[Key]>, `${Prefix}${Key}`>
}[keyof Block & string]
type PathsBelow<Raw, Path extends string> =
  Raw extends Setting<unknown>
    ? Path
    : Raw extends ReadonlyMap<string, unknown>
      ? Path
      : Raw extends readonly LabelledBlock<infer Body>[]
        ? PathsBelow<Body, Path>
        : PathsOf<Raw, `${Path}.`>

export type SettingPath = PathsOf<RawConfig>
export type RoleSettingPath = Extract<SettingPath, `${'client' | 'server' | 'nats' | 'secrets'}.${string}`>
export type ProcessSettingPath = Exclude<SettingPath, RoleSettingPath>
