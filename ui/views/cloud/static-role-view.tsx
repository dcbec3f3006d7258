import { useState } from 'preact/hooks'
import { useCapabilities } from '../../api/capabilities.ts'
import { pathOf } from '../../app/location.ts'
import { useResource } from '../../app/resource.ts'
import { Button } from '../../components/button.tsx'
import { formatSeconds } from '../../components/format.tsx'
import { ErrorText } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { CoreLoaded, Facts, useAction } from '../../components/core-parts.tsx'
import { type IssuedCredentials, readData, readStaticCredentials, type StaticRole } from './cloud.ts'
import { IssuedCredentialsCard } from './issued-credentials.tsx'

interface StaticRoleViewProps {
  readonly mount: string
  readonly name: string
}

export function StaticRoleView({ mount, name }: StaticRoleViewProps) {
  const [path, creds] = [`${mount}/static-roles/${name}`, `${mount}/static-creds/${name}`]
  const may = useCapabilities([creds])
  const resource = useResource((signal) => readData<StaticRole>(path, signal), [path])
  const [issued, setIssued] = useState<IssuedCredentials>()
  const { error, isBusy, run } = useAction()
  const parents = [
    { title: 'Cloud', to: '/cloud' },
    { title: mount, to: pathOf('cloud', mount) },
    { title: 'Static roles', to: pathOf('cloud', mount, 'static-roles') },
  ]
  return (
    <View title={name} parents={parents}>
      <CoreLoaded resource={resource} hint={`The definition of the role requires “read” on ${path}.`}>
        {(role) => (
          <section class="card">
            <Facts
              rows={[
                ['IAM user', role.username],
                ['Rotation period', formatSeconds(role.rotation_period)],
                role.assume_role_arn !== '' && ['Role to assume', role.assume_role_arn],
              ]}
            />
          </section>
        )}
      </CoreLoaded>
      {issued ? (
        <IssuedCredentialsCard issued={issued} role={name} clear={() => setIssued(undefined)} />
      ) : (
        may(creds, 'read') && (
          <section class="card">
            <h2>Credentials</h2>
            <p class="hint">The access key of the user. The server replaces it in each rotation period.</p>
            {error && <ErrorText error={error} />}
            <div class="form-actions">
              <Button
                kind="primary"
                isBusy={isBusy}
                onClick={() => run(async () => setIssued(await readStaticCredentials(creds)))}
              >
                Request credentials
              </Button>
            </div>
          </section>
        )
      )}
    </View>
  )
}
