/** `outpost group list|read|write|delete`. */
import { GROUPS, identityCommands } from './entity.ts'

export const commands = identityCommands(GROUPS)
