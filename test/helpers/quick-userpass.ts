/** Userpass with hashes that cost microseconds, for tests of other behaviour. */
import { userpassEngine } from '../../src/auth/userpass/userpass.ts'

export const quickUserpass = userpassEngine({ hashCost: 16 })
