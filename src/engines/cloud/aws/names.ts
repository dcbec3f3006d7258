/** Names of roles and static roles: word characters at both ends, and dots, dashes and at signs between. */
import { oneError, Rejection } from '../../framework/engine.ts'

const NAME = /^\w(?:[\w.@-]{0,510}\w)?$/

/** Throws a Rejection (404), as for a path that is none. */
export function checkName(name: string): void {
  if (!NAME.test(name)) throw new Rejection(404, oneError('unsupported path'))
}
