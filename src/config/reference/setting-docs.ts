/**
 * Descriptions of all settings. `scripts/reference.ts` writes the configuration reference from them; the program does not load
 * them. The type checker requires a description of each setting of the schema, and `test/config/setting-docs.test.ts` checks
 * defaults, examples and reloads against the program.
 */
import { PROCESS_SETTINGS } from './process-settings.ts'
import { ROLE_SETTINGS } from './role-settings.ts'
import type { SettingDoc, SettingPath } from './setting-doc.ts'

export const SETTING_DOCS: Readonly<Record<SettingPath, SettingDoc>> = { ...PROCESS_SETTINGS, ...ROLE_SETTINGS }
