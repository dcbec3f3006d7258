/** `outpost auth list|enable|disable|tune|move`. */
import { AUTH_METHODS, mountCommands } from './secrets.ts'

export const commands = mountCommands(AUTH_METHODS)
