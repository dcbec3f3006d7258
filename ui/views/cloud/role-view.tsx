import { useCapabilities } from '../../api/capabilities.ts'
import { pathOf } from '../../app/location.ts'
import { useResource } from '../../app/resource.ts'
import { formatSeconds } from '../../components/format.tsx'
import { View } from '../../components/view.tsx'
import { CoreLoaded, Facts, Names } from '../../components/core-parts.tsx'
import { type CloudRole, readableDocument, readData } from './cloud.ts'
import { CredentialsRequest } from './credentials-request.tsx'
import { RoleCheckCard } from './role-check.tsx'

interface RoleViewProps {
  readonly mount: string
  readonly name: string
}

export function RoleView({ mount, name }: RoleViewProps) {
  const path = `${mount}/roles/${name}`
  const [creds, check] = [`${mount}/creds/${name}`, `${path}/check`]
  const may = useCapabilities([path, creds, check])
  const resource = useResource((signal) => readData<CloudRole>(path, signal), [path])
  const parents = [
    { title: 'Cloud', to: '/cloud' },
    { title: mount, to: pathOf('cloud', mount) },
  ]
  return (
    <View title={name} parents={parents}>
      {(may(creds, 'read') || may(creds, 'update')) && (
        <CredentialsRequest path={creds} name={name} role={resource.data} />
      )}
      {may.isKnown && !may(creds, 'read') && <p class="notice">Requesting credentials requires “read” on {creds}.</p>}
      <CoreLoaded resource={resource} hint={`The definition of the role requires “read” on ${path}.`}>
        {(role) => <RoleFacts role={role} />}
      </CoreLoaded>
      {may(check, 'read') && <RoleCheckCard path={check} />}
    </View>
  )
}

function RoleFacts({ role }: { readonly role: CloudRole }) {
  const tags = Object.entries({ ...role.iam_tags, ...role.session_tags })
  return (
    <section class="card">
      <h2>Role</h2>
      <Facts
        rows={[
          ['Credential type', role.credential_type],
          has(role.role_arns) && ['Roles to assume', <Names key="roles" names={role.role_arns} />],
          has(role.policy_arns) && ['Policies', <Names key="policies" names={role.policy_arns} />],
          has(role.iam_groups) && ['Groups', <Names key="groups" names={role.iam_groups} />],
          tags.length > 0 && ['Tags', tags.map(([tag, value]) => `${tag}=${value}`).join(', ')],
          role.default_sts_ttl > 0 && ['Default TTL', formatSeconds(role.default_sts_ttl)],
          role.max_sts_ttl > 0 && ['Maximum TTL', formatSeconds(role.max_sts_ttl)],
          role.user_path !== '' && ['User path', role.user_path],
          role.permissions_boundary_arn !== '' && ['Permissions boundary', role.permissions_boundary_arn],
          role.mfa_serial_number !== '' && ['MFA device', role.mfa_serial_number],
          role.external_id !== '' && ['External ID', role.external_id],
        ]}
      />
      {role.policy_document !== '' && (
        <>
          <h3>Policy document</h3>
          <pre class="credentials" tabIndex={0} aria-label="Policy document">
            {readableDocument(role.policy_document)}
          </pre>
        </>
      )}
    </section>
  )
}

function has(list: readonly string[] | null): boolean {
  return list !== null && list.length > 0
}
