/** `outpost alloc list`. */
import { allocRoot, dataDirOption, listAllocations } from '../../../supervisor/alloc-directory.ts'
import { allocationJson, allocationTable } from '../../client/local-allocations.ts'
import { defineCommand } from '../../framework/command-shape.ts'
import { flag } from '../../framework/options.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'
import { shownJson } from '../../framework/shown.ts'

export const command = defineCommand({
  name: 'alloc list',
  summary: 'List the allocations of this host',
  details: 'Reads the manifests under the data directory, newest first. Needs no agent.',
  options: { 'data-dir': dataDirOption, json: flag('Print a JSON array of manifests') },
  run(values, _operands, io) {
    const allocations = listAllocations(allocRoot(values['data-dir'], io.env))
    if (values.json) io.out(shownJson(`${JSON.stringify(allocations.map(allocationJson), undefined, 2)}\n`))
    else
      io.out(
        allocations.length === 0 ? 'No allocations\n' : fitted(allocationTable(allocations), terminalOf(1, io.env)),
      )
    return Promise.resolve(0)
  },
})
