import { useState } from 'preact/hooks'
import { useCapabilities } from '../../../api/capabilities.ts'
import { useKeys } from '../../../app/keys.ts'
import { address, navigate, pathOf, setQuery } from '../../../app/location.ts'
import { useCommands } from '../../../app/palette.tsx'
import { useResource } from '../../../app/resource.ts'
import { tokenInfo } from '../../../app/session.ts'
import { Button } from '../../../components/button.tsx'
import { type Column, DataTable } from '../../../components/data-table.tsx'
import { Field } from '../../../components/field.tsx'
import { formatSeconds, Time } from '../../../components/format.tsx'
import { counted } from '../../../components/plural.ts'
import { Link } from '../../../components/link.tsx'
import { Empty, ErrorText } from '../../../components/states.tsx'
import { View } from '../../../components/view.tsx'
import { AccessTabs } from '../access-tabs.tsx'
import { LookUp } from '../look-up.tsx'
import { CoreLoaded, isNarrow, useAction } from '../../../components/core-parts.tsx'
import { TokenCreation } from './token-creation.tsx'
import { matchesToken, readTokenPage, type TokenRow } from './tokens.ts'

const NAME: Column<TokenRow> = {
  title: 'Name',
  cell: ({ accessor, token }) => (token ? token.display_name || 'token' : accessor),
  order: ({ token }) => token?.display_name ?? '',
}
const POLICIES: Column<TokenRow> = { title: 'Policies', cell: ({ token }) => token?.policies.join(', ') ?? '' }
const EXPIRES: Column<TokenRow> = {
  title: 'TTL',
  width: '110px',
  isNumber: true,
  cell: ({ token }) => token && (token.expire_time === null ? 'never expires' : formatSeconds(token.ttl)),
  order: ({ token }) => (token?.expire_time == null ? Number.POSITIVE_INFINITY : token.ttl),
}
const COLUMNS: readonly Column<TokenRow>[] = [
  NAME,
  POLICIES,
  { title: 'Path', cell: ({ token }) => token?.path ?? '', order: ({ token }) => token?.path ?? '' },
  {
    title: 'Created',
    width: '110px',
    cell: ({ token }) => token && <Time at={token.creation_time * 1000} />,
    order: ({ token }) => token?.creation_time ?? 0,
  },
  EXPIRES,
  { title: 'Accessor', width: '220px', cell: ({ accessor }) => <code>{accessor}</code> },
]

const ACCESSORS = 'auth/token/accessors'
const CREATE = 'auth/token/create'
const HINT =
  'Listing all tokens requires "list" and "sudo" on auth/token/accessors. A token can be looked up by its accessor.'

export function TokenList() {
  const may = useCapabilities([ACCESSORS, CREATE, 'auth/token/create-orphan'])
  const [isCreating, setCreating] = useState(false)
  const [more, setMore] = useState<{ readonly rows: readonly TokenRow[]; readonly hasMore: boolean }>()
  const loading = useAction()
  const resource = useResource((signal) => readTokenPage('', signal), [])
  const wanted = address.value.query.get('filter') ?? ''
  const own = tokenInfo.value?.accessor
  const mayCreate = may(CREATE, 'update')
  const create = () => setCreating(true)
  useKeys('Tokens', [
    ...(mayCreate ? [{ keys: 'n', label: 'Create a token', run: create }] : []),
    { keys: 'r', label: 'Reload', run: resource.reload },
  ])
  useCommands(mayCreate ? [{ title: 'Create a token', group: 'Tokens', run: create }] : [], [mayCreate])

  const rows = [...(resource.data?.rows ?? []), ...(more?.rows ?? [])]
  const hasMore = more ? more.hasMore : resource.data?.hasMore === true
  const loadMore = () =>
    loading.run(async () => {
      const page = await readTokenPage(rows.at(-1)?.accessor ?? '')
      setMore({ rows: [...(more?.rows ?? []), ...page.rows], hasMore: page.hasMore })
    })
  const reload = () => {
    setMore(undefined)
    resource.reload()
  }
  const shown = rows.filter((row) => matchesToken(row, wanted))

  return (
    <View
      title="Access"
      isFull
      actions={
        mayCreate && (
          <Button kind="primary" onClick={create}>
            Create token
          </Button>
        )
      }
    >
      <AccessTabs />
      <div class="bar">
        <Field
          label="Filter tokens"
          isLabelHidden
          isSearch
          placeholder="Filter by name, policy, path or accessor"
          value={wanted}
          onInput={(filter) => setQuery({ filter })}
        />
        <LookUp label="Accessor" open={(accessor) => navigate(pathOf('access', 'tokens', accessor))} />
        {own !== undefined && <Link to={pathOf('access', 'tokens', own)}>Your token</Link>}
      </div>
      <CoreLoaded resource={resource} hint={HINT}>
        {() =>
          shown.length === 0 ? (
            <Empty title={rows.length === 0 ? 'No tokens' : 'No token matches the filter'} />
          ) : (
            <DataTable
              label="Tokens"
              rows={shown}
              columns={isNarrow.value ? [NAME, POLICIES, EXPIRES] : COLUMNS}
              linkOf={({ accessor }) => pathOf('access', 'tokens', accessor)}
            />
          )
        }
      </CoreLoaded>
      {loading.error && <ErrorText error={loading.error} />}
      {resource.data && (
        <p class="hint" role="status">
          {shown.length === rows.length
            ? counted(rows.length, 'token')
            : `${shown.length} of ${counted(rows.length, 'token')}`}
          {hasMore && ', more on the server '}
          {hasMore && (
            <Button onClick={loadMore} isBusy={loading.isBusy}>
              Load more
            </Button>
          )}
        </p>
      )}
      {isCreating && (
        <TokenCreation
          mayOrphan={may('auth/token/create-orphan', 'update')}
          close={() => setCreating(false)}
          created={reload}
        />
      )}
    </View>
  )
}
