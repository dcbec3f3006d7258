import { useState } from 'preact/hooks'
import { useCapabilities } from '../../../api/capabilities.ts'
import { secrets } from '../../../api/client.ts'
import { useKeys } from '../../../app/keys.ts'
import { navigate, pathOf } from '../../../app/location.ts'
import { useResource } from '../../../app/resource.ts'
import { logOut, tokenInfo } from '../../../app/session.ts'
import { showSuccess } from '../../../app/toasts.tsx'
import { Button } from '../../../components/button.tsx'
import { Confirm } from '../../../components/dialog.tsx'
import { formatSeconds, Time } from '../../../components/format.tsx'
import { Link } from '../../../components/link.tsx'
import { ErrorText } from '../../../components/states.tsx'
import { View } from '../../../components/view.tsx'
import { CoreLoaded, Facts, Names, useAction } from '../../../components/core-parts.tsx'
import { lookUpToken, type TokenData } from './tokens.ts'

const PARENTS = [
  { title: 'Access', to: '/access' },
  { title: 'Tokens', to: '/access/tokens' },
]
const RENEW = 'auth/token/renew-accessor'
const RENEW_SELF = 'auth/token/renew-self'
const REVOKE = 'auth/token/revoke-accessor'
const REVOKE_SELF = 'auth/token/revoke-self'

export function TokenView({ accessor }: { readonly accessor: string }) {
  const isOwn = tokenInfo.value?.accessor === accessor
  const may = useCapabilities([RENEW, RENEW_SELF, REVOKE, REVOKE_SELF])
  const resource = useResource((signal) => lookUpToken(accessor, signal), [accessor, isOwn])
  const [isRevoking, setRevoking] = useState(false)
  const { error, isBusy, run } = useAction()
  const found = resource.data
  const mayRenew = found?.renewable === true && (may(RENEW, 'update') || (isOwn && may(RENEW_SELF, 'update')))
  const mayRevoke = found !== undefined && (may(REVOKE, 'update') || (isOwn && may(REVOKE_SELF, 'update')))
  const renew = () =>
    run(async () => {
      const path = isOwn ? RENEW_SELF : RENEW
      await secrets(path, { method: 'POST', body: isOwn ? {} : { accessor } })
      showSuccess('Renewed the token.')
      resource.reload()
    })
  const revoke = async () => {
    if (isOwn) {
      await secrets(REVOKE_SELF, { method: 'POST' })
      await logOut()
      return
    }
    await secrets(REVOKE, { method: 'POST', body: { accessor } })
    showSuccess('Revoked the token.')
    navigate('/access/tokens')
  }
  useKeys('Token', [
    { keys: 'x', label: 'Revoke the token', run: () => mayRevoke && setRevoking(true) },
    { keys: 'u', label: 'Back to the list', run: () => navigate('/access/tokens') },
  ])
  return (
    <View
      title={found ? found.display_name || 'Token' : 'Token'}
      parents={PARENTS}
      actions={
        <>
          {mayRenew && (
            <Button onClick={renew} isBusy={isBusy}>
              Renew
            </Button>
          )}
          {mayRevoke && (
            <Button kind="danger" onClick={() => setRevoking(true)}>
              Revoke
            </Button>
          )}
        </>
      }
    >
      {error && <ErrorText error={error} />}
      {isOwn && <p class="notice">This is the token that you are logged in with.</p>}
      <CoreLoaded resource={resource} hint="Looking up another token requires “update” on auth/token/lookup-accessor.">
        {(token) => <TokenFacts token={token} />}
      </CoreLoaded>
      {isRevoking && found && (
        <Confirm title="Revoke the token" action="Revoke" run={revoke} close={() => setRevoking(false)}>
          <p>
            The token “{found.display_name}” with the accessor <code>{accessor}</code>, all tokens that were created
            with it, and their leases are revoked at once.
            {isOwn && ' It is your own token: you are logged out.'}
          </p>
        </Confirm>
      )}
    </View>
  )
}

function TokenFacts({ token }: { readonly token: TokenData }) {
  const meta = Object.entries(token.meta ?? {})
  return (
    <section class="card">
      <Facts
        rows={[
          ['Accessor', <code key="accessor">{token.accessor}</code>],
          ['Policies', <Names key="policies" names={token.policies} />],
          token.identity_policies !== undefined && [
            'Policies of the entity',
            <Names key="identity" names={token.identity_policies} />,
          ],
          ['Type', `${token.type}${token.orphan ? ', orphan' : ''}${token.renewable ? ', renewable' : ''}`],
          ['Created', <Time key="created" at={token.creation_time * 1000} />],
          [
            'Expires',
            token.expire_time === null ? (
              'never'
            ) : (
              <span key="expires">
                <Time at={token.expire_time} /> (TTL {formatSeconds(token.ttl)})
              </span>
            ),
          ],
          token.period !== undefined && ['Period', formatSeconds(token.period)],
          token.explicit_max_ttl > 0 && ['Maximum TTL', formatSeconds(token.explicit_max_ttl)],
          token.num_uses > 0 && ['Uses left', token.num_uses],
          ['Created by', <code key="path">{token.path}</code>],
          token.role !== undefined && ['Role', token.role],
          token.entity_id !== '' && [
            'Entity',
            <Link key="entity" to={pathOf('access', 'identity', 'entities', token.entity_id)}>
              {token.entity_id}
            </Link>,
          ],
          token.bound_cidrs !== undefined && ['Bound to addresses', token.bound_cidrs.join(', ')],
          meta.length > 0 && ['Metadata', meta.map(([name, value]) => `${name}=${value}`).join(', ')],
        ]}
      />
    </section>
  )
}
