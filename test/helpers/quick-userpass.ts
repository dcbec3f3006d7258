/** Logins with passwords whose hashes cost microseconds, for tests that are about something else than the hash. */
import { userpassEngine } from '../../src/auth/userpass/userpass.ts'

export const quickUserpass = userpassEngine({ hashCost: 16 })
