/** Mutants of "The web interface". A mutant changes `src/`, and most of the interface is in `ui/`. */
import type { Exemption, Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: '| a page of another site | open `/ui/` in a new tab |',
    before: '"frame-ancestors \'none\'",',
    after: '"frame-ancestors \'self\'",',
    test: 'test/ui/assets.test.ts',
    testName: 'the page is validated',
  },
  {
    promise: '| a task with a hostile log, file name or allocation name |',
    before: '  "require-trusted-types-for \'script\'",\n',
    after: '',
    test: 'test/ui/assets.test.ts',
    testName: 'the page is validated',
  },
]

const IN_UI = 'the code is in `ui/`, and a mutant changes `src/` only'

export const EXEMPTIONS: readonly Exemption[] = [
  { promise: '| a link to the interface, from any author |', reason: IN_UI },
  { promise: '| | have an image of up to 40 million pixels decoded |', reason: IN_UI },
  { promise: '| an author of names, keys, descriptions or policies |', reason: IN_UI },
  { promise: '| a host behind the server | show any values about itself |', reason: IN_UI },
  { promise: '| a person with access to the unlocked browser |', reason: IN_UI },
  {
    promise: '| a holder of a stolen token |',
    reason:
      'no code of its own: the interface calls the API as any client, whose checks have mutants in token-holder.ts',
  },
  {
    promise: '| a caller without a token | read the files of the interface |',
    reason: 'no code decides it: the files are built before any request, and have nothing of the host',
  },
]
