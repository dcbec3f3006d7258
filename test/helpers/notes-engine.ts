/** Notes: a text by name. */
import { type Engine, type EngineCall, path, Rejection } from '../../src/engines/framework/engine.ts'
import { inPath, integer, text } from '../../src/engines/framework/fields.ts'

const name = inPath('Name of the note')

/** The most that a list may give: 0 asks for all, and the caller's policy may allow less. */
function most(limit: number, { limitMax = Number.MAX_SAFE_INTEGER }: EngineCall): number {
  return limit > 0 ? Math.min(limit, limitMax) : limitMax
}

export const notes: Engine = {
  type: 'notes',
  description: 'a text by name',
  paths: [
    path({
      pattern: '',
      summary: 'List the notes',
      fields: {
        after: text('Only names after this one', { fallback: '' }),
        limit: integer('Maximum number of names; 0 for all', { fallback: 0 }),
      },
      list: ({ after, limit }, call) => ({
        data: { keys: call.storage.list('', { after, limit: most(limit, call) }) },
      }),
    }),
    path({
      pattern: ':name',
      summary: 'Read, write or delete a note',
      fields: { name, text: text('What it says', { fallback: '' }) },
      read({ name: at }, { storage }) {
        const kept = storage.get(at)
        return kept && { data: { text: kept.toString('utf8', 1) } }
      },
      update({ name: at, text: says }) {
        if (Buffer.byteLength(at) > 1000) throw new Rejection(400, 'a name has at most 1000 bytes')
        // The first byte is the number of the format.
        return { batch: { puts: [{ path: at, value: Buffer.from(`\u0001${says}`) }], deletes: [] } }
      },
      delete: ({ name: at }) => ({ batch: { puts: [], deletes: [at] } }),
    }),
  ],
}
