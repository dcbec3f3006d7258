import { path } from '../../app/location.ts'
import type { ViewProps } from '../../app/view-props.ts'
import { Failure } from '../../components/states.tsx'
import { segmentsOf } from '../../app/path-segments.ts'
import { KeyTable } from './key-table.tsx'
import { KeyView } from './key-view.tsx'
import { SecondFactor } from './second-factor.tsx'

/** Keys of the engine (`/totp`, `/totp/keys/MOUNT/NAME`), and the second factor of the caller (`/totp/mfa`). */
export default function TotpView(_props: ViewProps) {
  const [, area = 'keys', mount, name] = segmentsOf(path.value)
  if (area === 'mfa') return <SecondFactor />
  if (area !== 'keys')
    return <Failure error={new Error(`There is no view at ${path.value}.`)} hint="Open TOTP again." />
  return mount !== undefined && name !== undefined ? <KeyView mount={mount} name={name} /> : <KeyTable />
}
