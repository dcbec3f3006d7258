/** Points of "Not covered": none of them is a promise that a test could keep. */
import type { Exemption } from '../mutant-list.ts'

const LIMIT = 'a limit of what is protected, not a promise'
const ADVICE = 'advice to the operator about what is not protected'

export const EXEMPTIONS: readonly Exemption[] = [
  { promise: 'Root, and the user that the agent runs as, can read the token', reason: ADVICE },
  { promise: "If an agent is killed after the server's response to a login", reason: LIMIT },
  { promise: 'Root on a server reads everything in it while the server is unsealed.', reason: LIMIT },
  { promise: 'Traffic analysis, and floods below the HTTP layer.', reason: LIMIT },
  { promise: 'Logins with a password from 256 or more networks', reason: LIMIT },
  { promise: 'Files and logs between server and host on NATS without TLS.', reason: LIMIT },
  { promise: 'Secrets that were returned, and keys held as strings, remain in freed memory', reason: LIMIT },
  { promise: 'A host may announce a new allocation in any namespace and job', reason: LIMIT },
  { promise: 'A host that sends as fast as its caller reads can continue forever', reason: LIMIT },
  { promise: '`roster.db` is not authenticated', reason: LIMIT },
  { promise: 'Hard links to files of other users', reason: ADVICE },
  { promise: 'A server that lost `roster.db` trusts the first node', reason: ADVICE },
]
