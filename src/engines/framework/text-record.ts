/** Texts by name as they are kept. A name may be any, `constructor` and `__proto__` too, which valibot's record leaves out. */
import * as v from 'valibot'
import { isObject } from './fields.ts'

export const textRecord = v.custom<Record<string, string>>(
  (value) => isObject(value) && Object.values(value).every((each) => typeof each === 'string'),
)
