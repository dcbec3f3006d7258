import { Tabs } from '../../components/tabs.tsx'

export function TotpTabs({ current }: { readonly current: 'keys' | 'mfa' }) {
  return (
    <Tabs
      label="TOTP"
      tabs={[
        { title: 'Keys', to: '/totp', isCurrent: current === 'keys' },
        { title: 'Your second factor', to: '/totp/mfa', isCurrent: current === 'mfa' },
      ]}
    />
  )
}
