/** Where the permission matrix differs from the recorded one. */
import type { Difference } from './judge.ts'
import { all, body, bodyOf, only, status } from './turns.ts'

export const aclDifferences: readonly Difference[] = [
  {
    because: 'Errors have their status',
    rows: /^acl\/(cat|readat)\//,
    turn: only(({ body: text }) => text.endsWith('Permission denied'), status(403)),
  },
  {
    because: 'Unknown tokens',
    rows: /^acl\/((?!health)[a-z-]+\/(bad|unknown)|auth\/both-header-wins)$/,
    turn: only(({ status: code }) => code !== 404, all(status(403), body('Permission denied'))),
  },
  {
    because: 'Tokens in bodies',
    rows: /^acl\/auth\/body$/,
    turn: all(status(403), body('Permission denied')),
  },
  {
    because: 'Garbage collection of a running allocation',
    rows: /^acl\/allocgc\//,
    turn: only(({ body: text }) => text.startsWith('No such allocation on client'), status(409)),
  },
  {
    because: 'No “rpc error” in front of messages',
    rows: /^acl\/ls-unknown\//,
    turn: bodyOf((text) => text.replace(/^rpc error: (?=Unknown)/, '')),
  },
]
