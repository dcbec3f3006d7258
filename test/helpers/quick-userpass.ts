/** Userpass with hashes that cost microseconds, for tests of other behavior. */
import { userpassEngine } from '../../src/auth/userpass/userpass.ts'

export const quickUserpass = userpassEngine({ hashCost: 16 })
