/** `/policies`: all policies. `/policies/NAME`: one, with its editor. */
import { useMemo, useState } from 'preact/hooks'
import { useCapabilities } from '../../api/capabilities.ts'
import { useKeys } from '../../app/keys.ts'
import { address, navigate, pathOf, setQuery } from '../../app/location.ts'
import { useCommands } from '../../app/palette.tsx'
import type { ViewProps } from '../../app/view-props.ts'
import { tokenInfo } from '../../app/session.ts'
import { Button } from '../../components/button.tsx'
import { type Column, DataTable } from '../../components/data-table.tsx'
import { Dialog } from '../../components/dialog.tsx'
import { Field } from '../../components/field.tsx'
import { Empty } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { LoadedSecrets, useSecretsResource } from '../secrets/states.tsx'
import { DEFAULT, listPolicies, policyPath, ROOT } from './policies.ts'
import { PolicyView } from './policy-view.tsx'

/** Any path of policies, to learn whether the token may create some. */
const CREATE_PATH = policyPath('new')

export default function PoliciesView({ params }: ViewProps) {
  const name = params['name']
  return name === undefined ? <PolicyList /> : <PolicyView name={name} />
}

const NOTES: Readonly<Record<string, string>> = {
  [ROOT]: 'grants everything',
  [DEFAULT]: 'of each token, unless it is created without',
}

const COLUMNS: readonly Column<string>[] = [
  { title: 'Name', cell: (name) => name, order: (name) => name },
  { title: 'Note', cell: noteOf, width: 'minmax(0, 2fr)' },
]

function noteOf(name: string): string {
  const isOwn = tokenInfo.value?.policies.includes(name) === true
  return [Object.hasOwn(NOTES, name) && NOTES[name], isOwn && 'your token has it'].filter(Boolean).join('; ')
}

function PolicyList() {
  const resource = useSecretsResource(listPolicies, [])
  const may = useCapabilities([CREATE_PATH])
  const mayCreate = may(CREATE_PATH, 'create') || may(CREATE_PATH, 'update')
  const [isCreating, setCreating] = useState(false)
  const create = () => setCreating(true)
  useKeys('Policies', mayCreate ? [{ keys: 'n', label: 'Create a policy', run: create }] : [])
  useCommands(mayCreate ? [{ title: 'Create a policy', group: 'Policies', run: create }] : [], [mayCreate])
  const wanted = address.value.query.get('q') ?? ''
  const names = useMemo(
    () => (resource.data ?? []).filter((name) => name.includes(wanted.toLowerCase())),
    [resource.data, wanted],
  )
  return (
    <View
      title="Policies"
      isFull
      actions={
        mayCreate && (
          <Button kind="primary" onClick={create} title="n">
            Create a policy
          </Button>
        )
      }
    >
      <Field
        label="Search policies"
        isLabelHidden
        placeholder="Search by name"
        isSearch
        value={wanted}
        onInput={(q) => setQuery({ q })}
      />
      <LoadedSecrets resource={resource}>
        {() =>
          names.length > 0 ? (
            <DataTable label="Policies" rows={names} columns={COLUMNS} linkOf={(name) => pathOf('policies', name)} />
          ) : (
            <Empty title="No policy matches the search." />
          )
        }
      </LoadedSecrets>
      {isCreating && <CreateDialog close={() => setCreating(false)} />}
    </View>
  )
}

function CreateDialog({ close }: { readonly close: () => void }) {
  const [name, setName] = useState('')
  const submit = (event: Event) => {
    event.preventDefault()
    close()
    navigate(pathOf('policies', name.trim().toLowerCase()))
  }
  return (
    <Dialog title="Create a policy" close={close}>
      <form class="form" onSubmit={submit}>
        <Field label="Name" value={name} onInput={setName} isRequired hint="Stored in lower case" />
        <div class="form-actions">
          <Button type="submit" kind="primary" isDisabled={name.trim() === ''}>
            Continue
          </Button>
        </div>
      </form>
    </Dialog>
  )
}
