/** Lists of what an engine keeps under hidden names (`keyed-hash.ts`): the names are read out of the entries. */
import type { EngineCall } from './engine.ts'
import { inTurns, RECORD_COST, type Steps } from './time-slices.ts'

/** Names in the entries directly below a folder, in order. */
export async function hiddenNames(
  call: EngineCall,
  folder: string,
  nameOf: (entry: Buffer) => string,
): Promise<string[]> {
  return inTurns(found(call, folder, nameOf), call)
}

function* found({ storage }: EngineCall, folder: string, nameOf: (entry: Buffer) => string): Steps<string[]> {
  const names: string[] = []
  for (const hash of storage.list(folder)) {
    const entry = storage.get(folder + hash)
    if (entry) names.push(nameOf(entry))
    yield RECORD_COST
  }
  return names.sort()
}
