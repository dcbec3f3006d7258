import { Empty } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'

export default function TemporaryView() {
  return (
    <View title="totp-view">
      <Empty title="Not built yet" />
    </View>
  )
}
