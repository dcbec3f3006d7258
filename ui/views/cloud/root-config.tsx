import { useState } from 'preact/hooks'
import { useCapabilities } from '../../api/capabilities.ts'
import { secrets } from '../../api/client.ts'
import { useResource } from '../../app/resource.ts'
import { showSuccess } from '../../app/toasts.tsx'
import { Button } from '../../components/button.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { formatSeconds } from '../../components/format.tsx'
import { View } from '../../components/view.tsx'
import { CoreLoaded, Facts } from '../../components/core-parts.tsx'
import { readData, type RootConfig } from './cloud.ts'
import { CloudTabs } from './cloud-tabs.tsx'

export function RootConfigView({ mount }: { readonly mount: string }) {
  const [path, rotate] = [`${mount}/config/root`, `${mount}/config/rotate-root`]
  const may = useCapabilities([rotate])
  const resource = useResource((signal) => readData<RootConfig>(path, signal), [path])
  const [isAsking, setAsking] = useState(false)
  const [warnings, setWarnings] = useState<readonly string[]>([])
  const mayRotate = may(rotate, 'update') && (resource.data?.access_key ?? '') !== ''
  const run = async () => {
    const answer = await secrets<{ access_key: string }>(rotate, { method: 'POST' })
    showSuccess(`Rotated: the new access key is ${answer.data.access_key}.`)
    setWarnings(answer.warnings ?? [])
    resource.reload()
  }
  return (
    <View
      title={`Cloud: ${mount}`}
      actions={
        mayRotate && (
          <Button kind="danger" onClick={() => setAsking(true)}>
            Rotate the root key
          </Button>
        )
      }
    >
      <CloudTabs mount={mount} current="root" />
      {warnings.map((warning) => (
        <p key={warning} class="notice notice-warning">
          {warning}
        </p>
      ))}
      <CoreLoaded resource={resource} hint={`The configuration requires “read” on ${path}.`}>
        {(config) => <RootFacts config={config} />}
      </CoreLoaded>
      {isAsking && (
        <Confirm title="Rotate the root key" action="Rotate" typed={mount} run={run} close={() => setAsking(false)}>
          <p>
            The server creates an access key for the IAM user of the engine, stores it, and deletes the key{' '}
            <code>{resource.data?.access_key}</code>. Everything else that uses the old key stops working. The secret
            key is not shown. It must be the only key of its user.
          </p>
        </Confirm>
      )}
    </View>
  )
}

function RootFacts({ config }: { readonly config: RootConfig }) {
  const rotation =
    config.rotation_period > 0 ? `every ${formatSeconds(config.rotation_period)}` : config.rotation_schedule
  return (
    <section class="card">
      <Facts
        rows={[
          ['Access key ID', config.access_key === '' ? 'none: environment or identity token' : config.access_key],
          ['Region', config.region === '' ? 'default' : config.region],
          config.role_arn !== '' && ['Role', config.role_arn],
          config.identity_token_audience !== '' && ['Audience', config.identity_token_audience],
          config.iam_endpoint !== '' && ['IAM endpoint', config.iam_endpoint],
          config.sts_endpoint !== '' && ['STS endpoint', config.sts_endpoint],
          ['Automatic rotation', rotation === '' || config.disable_automated_rotation ? 'off' : rotation],
        ]}
      />
    </section>
  )
}
